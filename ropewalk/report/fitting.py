"""The report of a search: a paragraph, a table, the Pareto front, the history."""

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
from ropewalk.search.final_test import FinalTest, FitResult
from ropewalk.search.spaces import HandSet
from ropewalk.search.trials import MeasuredTrial

CUT = "On fitting texts; the worse half is cut off."
NOTES = (
    "loss: nats per token on the second half of each text; in brackets the 95 % interval over texts",
    "behind: loss minus that of the search's choice on the same texts; an interval above 0 means the choice is better",
    "texts: extensions that broke on the first fitting texts are tested on a few texts only",
    "short: change of the loss within the trained length; time: processor time, against the base model",
    "the table is on texts that the search did not see; the figures of front and history are on fitting texts",
)


def write_fit(fit: FitResult, folder: Path, *, command: str = "") -> Path:
    """Write the extension, the page, its figures and every number."""
    drawn = figures(fit)
    with replacing(folder) as place:
        for figure in drawn:
            written(figure, place)
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
    """The goal as a title."""
    goal = fit.goal
    lengths = f"{goal.target_len:,} tokens, trained on {goal.facts.trained_len:,}"
    return f"The best extension for {lengths} (deployable: {goal.deployable})"


def words(fit: FitResult) -> str:
    """Which extension was written, how much better it is than which other, and how certain that is."""
    goal, winner = fit.goal, fit.written
    sentences = [
        f"Written: {winner.line}, {_standing(fit)}.",
        f"On {winner.loss.of} texts that the search did not see, the last {goal.last:,} of {goal.target_len:,} tokens "
        f"have a loss of {winner.loss.value:.3f} nats.",
        _over_the_rival(fit) if winner is fit.answer else _over_the_search(fit),
        _out_of_budget(fit),
        f"The loss on short texts changes by {_signed(winner.damage)}, and a text takes {winner.slowdown:.1f} times as "
        "long as with the base model.",
    ]
    return " ".join(sentence for sentence in sentences if sentence)


def _standing(fit: FitResult) -> str:
    if fit.written is not fit.answer:
        return "the best hand-set extension on the test texts"
    return f"the best of {_searched(fit)} on the fitting texts"


def _searched(fit: FitResult) -> str:
    """The number of trials."""
    by_hand = sum(trial.seed for trial in fit.history)
    return f"{by_hand} hand-set and {len(fit.history) - by_hand} proposed extensions"


def _over_the_rival(fit: FitResult) -> str:
    rival = fit.rival
    if rival is None:
        return ""
    if rival.extension == fit.answer.extension:
        return "It is a hand-set extension: no proposed one is better on the fitting texts."
    lead = f"That is {_margin(rival.behind)} {rival.line}, the best hand-set extension on these texts"
    return f"{lead}: {_certainty(rival)}.{_kept(fit, rival)}"


def _over_the_search(fit: FitResult) -> str:
    """Why the search's choice is not the one written."""
    value, low, high, of = fit.written.behind
    less = _margin(Estimate(-value, -high, -low, of))
    chosen = f"{fit.answer.line}, the best of {_searched(fit)} on the fitting texts"
    return f"That is {less} the search's choice ({chosen}): {_certainty(fit.written)}."


def _out_of_budget(fit: FitResult) -> str:
    """How many hand-set extensions there was no time for."""
    if not fit.untried or fit.budget is None:
        return ""
    lead = f"The search had no time for {fit.untried} more hand-set extensions (the budget is"
    return f"{lead} {fit.budget:.0f} s): a longer --budget covers all of them, and proposes others."


def _margin(behind: Estimate) -> str:
    if behind.value >= 0:
        return f"{behind.value:.3f} [{behind.low:.3f}, {behind.high:.3f}] less than"
    return f"{-behind.value:.3f} [{-behind.high:.3f}, {-behind.low:.3f}] more than"


def _certainty(rival: FinalTest) -> str:
    """Whether a difference is beyond chance; a rival that is surely better has been written instead."""
    if not rival.behind.clear_of(0):
        return "not enough texts to tell them apart"
    return "the 95 % interval excludes 0"


def _kept(fit: FitResult, rival: FinalTest) -> str:
    """Over-fitting: the same margin on the fitting texts."""
    rival_loss = next(
        (trial.figures.loss for trial in fit.history if trial.extension == rival.extension and trial.figures), None
    )
    if rival_loss is None or fit.chosen.figures is None:
        return ""
    return f" On the fitting texts the margin is {rival_loss - fit.chosen.figures.loss:.3f}."


def _signed(change: Estimate) -> str:
    return f"{change.value:+.3f} [{change.low:+.3f}, {change.high:+.3f}]"


def table(fit: FitResult) -> PageTable:
    """The answer and all others that were tested, the lowest loss first."""
    keys = fit.answer.keys is not None
    head = ("extension", "texts", "loss", "behind", "short", "time", *(["passkeys"] * keys), "what it is")
    others = [tested for tested in fit.beside if tested.extension != fit.answer.extension]
    every = sorted([fit.answer, *others], key=lambda tested: (tested.behind.value, tested is not fit.answer))
    return PageTable(head, tuple(_row(tested, fit) for tested in every), ends_in_words=True)


def _row(tested: FinalTest, fit: FitResult) -> tuple[str, ...]:
    behind = "" if tested is fit.answer else interval(tested.behind)
    keys = [] if tested.keys is None else [f"{100 * tested.keys.value:.0f}%"]
    cells = (
        tested.line,
        str(tested.loss.of),
        f"{tested.loss.value:.3f}",
        behind,
        f"{tested.damage.value:+.3f}",
        f"{tested.slowdown:.1f}x",
    )
    return (*cells, *keys, "" if tested.line == BARE else brief(tested.extension))


def figures(fit: FitResult) -> list[ReportFigure]:
    """The front, the history, and the slowing of each pair where it is one table."""
    drawn = [front(fit), history(fit)]
    return [*drawn, *stretches(fit)]


def front(fit: FitResult) -> ReportFigure:
    """Long loss against short damage; the size of a point is its cost."""
    figure, axis = axes("loss under long context, nats per token", "rise of the loss on short texts, nats per token")
    numbers = []
    whole = [trial for trial in fit.history if trial.figures]
    for (space, group), style in zip(_by_space(whole).items(), styles(), strict=False):
        places = [(f.loss, f.damage, f.slowdown) for trial in group if (f := trial.figures)]
        losses, harms, costs = zip(*places, strict=True)
        sizes = [12 * max(0.5, cost) for cost in costs]
        axis.scatter(losses, harms, s=sizes, label=space, color=style["color"], marker=style["marker"], alpha=0.7)
        numbers += [(trial.number, space, *place) for trial, place in zip(group, places, strict=True)]
    edge = pareto([(f.loss, f.damage) for trial in whole if (f := trial.figures)])
    axis.step(*zip(*edge, strict=True), where="post", color="black", linewidth=0.8)
    _focused(axis, whole)
    legend(figure, axis)
    caption = (
        f"Trials by loss on long and on short texts; the line is the Pareto front, the size of a point its time. {CUT}"
    )
    return ReportFigure("front", caption, figure, ("trial", "space", "loss", "damage", "slowdown"), tuple(numbers))


def pareto(places: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Pairs of which no other is better in both numbers, by rising first number."""
    edge: list[tuple[float, float]] = []
    for place in sorted(set(places)):
        if not edge or place[1] < edge[-1][1]:
            edge.append(place)
    return edge


def history(fit: FitResult) -> ReportFigure:
    """Every completed trial, and the best so far within the goal."""
    figure, axis = axes("trial", "loss, nats per token")
    numbers = []
    whole = [trial for trial in fit.history if trial.figures]
    for (space, group), style in zip(_by_space(whole).items(), styles(), strict=False):
        points = [(trial.number, trial.figures.loss) for trial in group if trial.figures]
        mark = {"color": style["color"], "marker": style["marker"], "linestyle": "", "markersize": 4}
        axis.plot(*zip(*points, strict=True), label=space, **mark)
        numbers += [(number, space, loss) for number, loss in points]
    allowed = [(trial.number, trial.figures.loss if trial.figures and trial.keeps else math.inf) for trial in whole]
    line = [
        (number, low)
        for (number, _), low in zip(allowed, accumulate((loss for _, loss in allowed), min), strict=True)
        if math.isfinite(low)
    ]
    axis.step(*zip(*line, strict=True), where="post", color="black", linewidth=0.8)
    _focused(axis, whole, up=True)
    legend(figure, axis)
    caption = f"Completed trials; the line is the best so far. {CUT}"
    return ReportFigure("history", caption, figure, ("trial", "space", "loss"), tuple(sorted(numbers)))


def stretches(fit: FitResult) -> list[ReportFigure]:
    """How many times more slowly each pair is rotated; none where that is not one table."""
    facts = fit.goal.facts
    compared = [fit.answer, *([fit.rival] if fit.rival else [])]
    figure, axis = axes("pair of dimensions, fast to slow", "slowed by")
    numbers = []
    for tested, style in zip(compared, lines(), strict=False):
        try:
            table = static_table(tested.extension.at_layer(0, facts), tested.extension.ground(facts))
            times = torch.where(table > 0, trained(facts) / table, 1.0).tolist()  # 1 for pairs without rotation
        except DoesNotFit:
            return []
        axis.plot(range(len(times)), times, label=named(tested.line), **style)
        numbers += [(tested.line, pair, value) for pair, value in enumerate(times)]
    axis.set_yscale("log", base=2)
    legend(figure, axis)
    caption = "How much the answer slows each pair, beside the best hand-set extension."
    return [ReportFigure("stretches", caption, figure, ("extension", "pair", "times"), tuple(numbers))]


def _by_space(trials: Sequence[MeasuredTrial]) -> dict[str, list[MeasuredTrial]]:
    groups: dict[str, list[MeasuredTrial]] = {HandSet.name: []}
    for trial in trials:
        groups.setdefault(trial.space, []).append(trial)
    return {space: group for space, group in groups.items() if group}


def _focused(axis: Axes, whole: Sequence[MeasuredTrial], *, up: bool = False) -> None:
    """Show the better half and the best hand-set extension: broken ones would squeeze the rest together."""
    losses = sorted(trial.figures.loss for trial in whole if trial.figures)
    by_hand = min((trial.figures.loss for trial in whole if trial.figures and trial.seed), default=losses[0])
    low, high = losses[0], max(losses[len(losses) // 2], by_hand)
    room = max(high - low, 0.01)
    (axis.set_ylim if up else axis.set_xlim)(low - room / 10, high + room / 2)


def as_json(fit: FitResult, command: str = "") -> dict[str, Any]:
    """Every number, and all that is needed to measure it again."""
    return {
        "command": command,
        "words": words(fit),
        "made": fit.made,
        "marks": dict(fit.marks),
        "goal": fit.goal.to_json(),
        "trained_len": fit.goal.facts.trained_len,
        "extension": fit.advised.to_json(),
        "judged": [_judged_json(item) for item in (fit.answer, *fit.beside)],
        "trials": [_tried_json(item) for item in fit.history],
    }


def _judged_json(tested: FinalTest) -> dict[str, Any]:
    return {
        "line": tested.line,
        "extension": tested.extension.to_json(),
        "loss": tested.loss._asdict(),
        "behind": tested.behind._asdict(),
        "damage": tested.damage._asdict(),
        "slowdown": tested.slowdown,
        "pass_keys": tested.keys._asdict() if tested.keys else None,
    }


def _tried_json(trial: MeasuredTrial) -> dict[str, Any]:
    return {
        "trial": trial.number,
        "space": trial.space,
        "values": trial.values,
        "extension": trial.extension.to_json(),
        "rungs": trial.rungs,
        "figures": trial.figures._asdict() if trial.figures else None,
        "keeps_to_the_goal": trial.keeps if trial.figures else None,
    }
