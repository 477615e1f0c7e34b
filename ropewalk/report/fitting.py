"""What a search has come to: a paragraph, a table, the front of what can be had at which price, the history."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from matplotlib.axes import Axes

from ropewalk.errors import DoesNotFit
from ropewalk.evaluation.metrics.intervals import Estimate
from ropewalk.folders import replacing, write_text
from ropewalk.frequencies.signature import trained
from ropewalk.hf.runtime.static_schedule import static_table
from ropewalk.notation import BARE
from ropewalk.report.drawing import ReportFigure, axes, legend, lines, named, styles, written
from ropewalk.report.html_page import PagePart, PageTable, render_page
from ropewalk.report.tables import brief, interval
from ropewalk.search.judging import FitResult, TestedExtension
from ropewalk.search.spaces import HandSet
from ropewalk.search.tried import MeasuredTrial

CUT = "Fitting texts; the worse half is cut off."
NOTES = (
    "loss: nats per token of the second half of each text; in brackets the 95 % interval over texts",
    "behind: loss less that of what the search chose on the same texts; where the interval is above 0 that is better",
    "texts: what broke on the first of the fitting texts is judged on a few, and its loss is of these",
    "short: the change of the loss within the trained length; time: of the processor, against the bare model",
    "the table is of texts that the search did not see; the figures of the front and the history are of those it saw",
)


def write_fit(fit: FitResult, folder: Path, *, command: str = "") -> Path:
    """The extension, the page, its figures and every number."""
    drawn = figures(fit)
    with replacing(folder) as place:
        for each in drawn:
            written(each, place)
        write_text(place / "extension.json", json.dumps(fit.advised.to_json(), indent=1) + "\n")
        write_text(place / "results.json", json.dumps(as_json(fit, command), indent=1) + "\n")
        text = render_page(
            title=title(fit),
            advice=[words(fit)],
            table=table(fit),
            notes=NOTES,
            parts=[PagePart("", "", tuple(drawn))],
            command=command,
            made={**fit.made, **fit.marks, "goal": fit.goal.to_json()},
            folder=place,
        )
        write_text(place / "report.html", text)
    return folder / "report.html"


def title(fit: FitResult) -> str:
    """What was looked for."""
    goal = fit.goal
    lengths = f"{goal.target_len:,} tokens, trained on {goal.facts.trained_len:,}"
    return f"The best for {lengths} (deployable: {goal.deployable})"


def words(fit: FitResult) -> str:
    """What was written, over what, by how much, with what certainty."""
    goal, own = fit.goal, fit.written
    said = [
        f"Written: {own.line}, {_standing(fit)}.",
        f"On {own.loss.of} texts that the search did not see, the last {goal.last:,} of {goal.target_len:,} tokens "
        f"cost {own.loss.value:.3f} nats each.",
        _over_the_rival(fit) if own is fit.answer else _over_the_search(fit),
        _out_of_budget(fit),
        f"Short texts change by {_signed(own.damage)}, and a text takes {own.slowdown:.1f} times the bare "
        "model's time.",
    ]
    return " ".join(each for each in said if each)


def _standing(fit: FitResult) -> str:
    if fit.written is not fit.answer:
        return "the best of those set by hand on the texts that judge"
    return f"the best on the fitting texts of {_searched(fit)}"


def _searched(fit: FitResult) -> str:
    """How much was tried."""
    by_hand = sum(each.seed for each in fit.history)
    return f"{by_hand} set by hand and {len(fit.history) - by_hand} proposed"


def _over_the_rival(fit: FitResult) -> str:
    rival = fit.rival
    if rival is None:
        return ""
    if rival.extension == fit.answer.extension:
        return "It was set by hand: nothing that was proposed is better on the fitting texts."
    said = f"That is {_margin(rival.behind)} {rival.line}, the best of those set by hand on these texts"
    return f"{said}: {_certainty(rival)}.{_kept(fit, rival)}"


def _over_the_search(fit: FitResult) -> str:
    """Why the search's own choice is not what is written."""
    value, low, high, of = fit.written.behind
    less = _margin(Estimate(-value, -high, -low, of))
    chosen = f"{fit.answer.line}, the best on the fitting texts of {_searched(fit)}"
    return f"That is {less} what the search chose ({chosen}): {_certainty(fit.written)}."


def _out_of_budget(fit: FitResult) -> str:
    """What there was no time for."""
    if not fit.untried or fit.budget is None:
        return ""
    said = f"The search ended before it had tried {fit.untried} more of those set by hand (the budget is"
    return f"{said} {fit.budget:.0f} s): with a longer --budget it chooses among all, and proposes others."


def _margin(behind: Estimate) -> str:
    if behind.value >= 0:
        return f"{behind.value:.3f} [{behind.low:.3f}, {behind.high:.3f}] less than"
    return f"{-behind.value:.3f} [{-behind.high:.3f}, {-behind.low:.3f}] more than"


def _certainty(rival: TestedExtension) -> str:
    """What may be said of a difference; a rival that is surely better is what is written."""
    if not rival.behind.clear_of(0):
        return "no difference that so few texts can show"
    return "its 95 % interval puts the difference beyond chance"


def _kept(fit: FitResult, rival: TestedExtension) -> str:
    """Over-fitting, seen: the same margin on the texts that the search saw."""
    seen = next((each.figures.loss for each in fit.history if each.extension == rival.extension and each.figures), None)
    if seen is None or fit.chosen.figures is None:
        return ""
    return f" On the texts that it was fitted to, the margin is {seen - fit.chosen.figures.loss:.3f}."


def _signed(found: Estimate) -> str:
    return f"{found.value:+.3f} [{found.low:+.3f}, {found.high:+.3f}]"


def table(fit: FitResult) -> PageTable:
    """The answer and everything it was judged beside, the lowest loss first."""
    keys = fit.answer.keys is not None
    head = ("extension", "texts", "loss", "behind", "short", "time", *(["pass keys"] * keys), "what it is")
    others = [each for each in fit.beside if each.extension != fit.answer.extension]
    every = sorted([fit.answer, *others], key=lambda each: (each.behind.value, each is not fit.answer))
    return PageTable(head, tuple(_row(each, fit) for each in every), ends_in_words=True)


def _row(each: TestedExtension, fit: FitResult) -> tuple[str, ...]:
    behind = "" if each is fit.answer else interval(each.behind)
    found = [] if each.keys is None else [f"{100 * each.keys.value:.0f}%"]
    cells = (
        each.line,
        str(each.loss.of),
        f"{each.loss.value:.3f}",
        behind,
        f"{each.damage.value:+.3f}",
        f"{each.slowdown:.1f}x",
    )
    return (*cells, *found, "" if each.line == BARE else brief(each.extension))


def figures(fit: FitResult) -> list[ReportFigure]:
    """The front, the history, and what each pair of dimensions does where that is one table."""
    found = [front(fit), history(fit)]
    return [*found, *stretches(fit)]


def front(fit: FitResult) -> ReportFigure:
    """Long loss against short damage; the size of a point is its cost."""
    figure, own = axes("loss under long context, nats per token", "what short texts lose, nats per token")
    numbers = []
    whole = [each for each in fit.history if each.figures]
    for (space, group), style in zip(_by_space(whole).items(), styles(), strict=False):
        places = [(f.loss, f.damage, f.slowdown) for each in group if (f := each.figures)]
        losses, harms, costs = zip(*places, strict=True)
        sizes = [12 * max(0.5, cost) for cost in costs]
        own.scatter(losses, harms, s=sizes, label=space, color=style["color"], marker=style["marker"], alpha=0.7)
        numbers += [(each.number, space, *place) for each, place in zip(group, places, strict=True)]
    edge = pareto([(f.loss, f.damage) for each in whole if (f := each.figures)])
    own.step(*zip(*edge, strict=True), where="post", color="black", linewidth=0.8)
    _focused(own, whole)
    legend(figure, own)
    caption = f"What can be had at which price: the line is the front, the size of a point its time. {CUT}"
    return ReportFigure("front", caption, figure, ("trial", "space", "loss", "damage", "slowdown"), tuple(numbers))


def pareto(places: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Those of which none other is better in both, from the lowest first number on."""
    kept: list[tuple[float, float]] = []
    for place in sorted(set(places)):
        if not kept or place[1] < kept[-1][1]:
            kept.append(place)
    return kept


def history(fit: FitResult) -> ReportFigure:
    """Every trial that was measured wholly, and the best so far of those that keep to the goal."""
    figure, own = axes("trial", "loss, nats per token")
    numbers = []
    whole = [each for each in fit.history if each.figures]
    for (space, group), style in zip(_by_space(whole).items(), styles(), strict=False):
        points = [(each.number, each.figures.loss) for each in group if each.figures]
        mark = {"color": style["color"], "marker": style["marker"], "linestyle": "", "markersize": 4}
        own.plot(*zip(*points, strict=True), label=space, **mark)
        numbers += [(number, space, loss) for number, loss in points]
    keeping = [(each.number, each.figures.loss if each.figures and each.keeps else math.inf) for each in whole]
    line = [
        (number, low)
        for (number, _), low in zip(keeping, accumulate((loss for _, loss in keeping), min), strict=True)
        if math.isfinite(low)
    ]
    own.step(*zip(*line, strict=True), where="post", color="black", linewidth=0.8)
    _focused(own, whole, up=True)
    legend(figure, own)
    caption = f"The trials that were measured wholly; the line is the best so far. {CUT}"
    return ReportFigure("history", caption, figure, ("trial", "space", "loss"), tuple(sorted(numbers)))


def stretches(fit: FitResult) -> list[ReportFigure]:
    """How many times more slowly each pair turns; nothing where no one table says it."""
    facts = fit.goal.facts
    shown = [fit.answer, *([fit.rival] if fit.rival else [])]
    figure, own = axes("pair of dimensions, fast to slow", "times more slowly")
    numbers = []
    for each, style in zip(shown, lines(), strict=False):
        try:
            table = static_table(each.extension.at_layer(0, facts), each.extension.ground(facts))
            times = torch.where(table > 0, trained(facts) / table, 1.0).tolist()  # those that stand still are no slower
        except DoesNotFit:
            return []
        own.plot(range(len(times)), times, label=named(each.line), **style)
        numbers += [(each.line, pair, value) for pair, value in enumerate(times)]
    own.set_yscale("log", base=2)
    legend(figure, own)
    caption = "What the answer does to each pair, beside the best that was set by hand."
    return [ReportFigure("stretches", caption, figure, ("extension", "pair", "times"), tuple(numbers))]


def _by_space(found: Sequence[MeasuredTrial]) -> dict[str, list[MeasuredTrial]]:
    groups: dict[str, list[MeasuredTrial]] = {HandSet.name: []}
    for each in found:
        groups.setdefault(each.space, []).append(each)
    return {space: group for space, group in groups.items() if group}


def _focused(own: Axes, whole: Sequence[MeasuredTrial], *, up: bool = False) -> None:
    """Show the better half and the best that was set by hand: what breaks would press the rest together."""
    losses = sorted(each.figures.loss for each in whole if each.figures)
    by_hand = min((each.figures.loss for each in whole if each.figures and each.seed), default=losses[0])
    low, high = losses[0], max(losses[len(losses) // 2], by_hand)
    room = max(high - low, 0.01)
    (own.set_ylim if up else own.set_xlim)(low - room / 10, high + room / 2)


def as_json(fit: FitResult, command: str = "") -> dict[str, Any]:
    """Every number, and everything needed to measure it again."""
    return {
        "command": command,
        "words": words(fit),
        "made": fit.made,
        "marks": dict(fit.marks),
        "goal": fit.goal.to_json(),
        "trained_len": fit.goal.facts.trained_len,
        "extension": fit.advised.to_json(),
        "judged": [_judged_json(each) for each in (fit.answer, *fit.beside)],
        "trials": [_tried_json(each) for each in fit.history],
    }


def _judged_json(each: TestedExtension) -> dict[str, Any]:
    return {
        "line": each.line,
        "extension": each.extension.to_json(),
        "loss": each.loss._asdict(),
        "behind": each.behind._asdict(),
        "damage": each.damage._asdict(),
        "slowdown": each.slowdown,
        "pass_keys": each.keys._asdict() if each.keys else None,
    }


def _tried_json(each: MeasuredTrial) -> dict[str, Any]:
    return {
        "trial": each.number,
        "space": each.space,
        "values": each.values,
        "extension": each.extension.to_json(),
        "rungs": each.rungs,
        "figures": each.figures._asdict() if each.figures else None,
        "keeps_to_the_goal": each.keeps if each.figures else None,
    }
