"""The report of a search: a paragraph, a table, the Pareto front, the history."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import torch

from ropewalk.extension.notation import BARE
from ropewalk.extension.static import static_table, why_not_static
from ropewalk.files import finite_json
from ropewalk.measure.comparison.verdict import BREAK
from ropewalk.measure.report.drawing.build import IntervalRow, interval_chart, line_chart, scatter
from ropewalk.measure.report.drawing.charts import BASE_KEY, OTHERS, Axis, Chart, Panel, ReportFigure, Series, styles_of
from ropewalk.measure.report.drawing.names import name_of
from ropewalk.measure.report.html_page import PagePart, ReportPage, write_page
from ropewalk.measure.report.tables import brief, interval, short, times_as_long
from ropewalk.measure.report.titles import corpus_of, date_of, model_of, texts
from ropewalk.measure.report.written_tables import PageTable
from ropewalk.methods.frequencies.frequencies import trained_theta
from ropewalk.search.final_test import FinalTest, FitResult
from ropewalk.search.fitting_words import words
from ropewalk.search.spaces import HandSet
from ropewalk.search.trials import MeasuredTrial

CUT = "On fitting texts; the worse half is cut off at the edge."
NOTES = (
    "behind: loss minus that of the search's choice on the same texts; an interval above 0 means the choice is better",
    "texts: extensions that broke on the first fitting texts are tested on a few texts only",
    "short: change of the loss within the trained length; time: processor time, against the base model",
    "the table is on texts that the search did not see; the figures of front and history are on fitting texts",
)
ABOUT_TABLE = "The final test, the lowest loss first; a click on a heading sorts."
ABOUT_SEARCH = "What the search tried, on the texts that it fits on."
ABOUT_PAIRS = "How much more slowly each pair of dimensions rotates than in training."
DATA = "results.json"


def write_fit(fit: FitResult, folder: Path, *, command: str = "", pictures: str = "") -> Path:
    """Write the extension, the page, its figures and every number."""
    records = {"extension.json": fit.advised.to_json(), DATA: finite_json(as_json(fit, command))}
    files = {name: json.dumps(record, indent=1) + "\n" for name, record in records.items()}
    return write_page(page_of(fit, command), folder / "report.html", files, pictures)


def page_of(fit: FitResult, command: str = "") -> ReportPage:
    """What the page says."""
    model, corpus, goal, line = model_of(fit.made), corpus_of(fit.marks) or "a corpus", fit.goal, fit.written.line
    pairs = stretches(fit)
    return ReportPage(
        kind="ropewalk fit",
        title=f"{model} under {line}, fitted to {goal.target_len:,} tokens on {texts(goal.samples)} of {corpus}",
        date=date_of(fit.made),
        facts=[
            ("model", model),
            ("extension", line),
            ("corpus", corpus),
            ("texts", f"{goal.samples} to fit on, {goal.judges} others to test on"),
            ("goal", title(fit)),
        ],
        advice=[words(fit)],
        headline=[lead(fit)],
        table=table(fit),
        table_about=ABOUT_TABLE,
        notes=(f"loss: nats per token of {goal.scored.rstrip(',')}; in brackets the 95 % interval", *NOTES),
        parts=[
            PagePart("the search", ABOUT_SEARCH, (front(fit), history(fit))),
            *([PagePart("rotations", ABOUT_PAIRS, tuple(pairs))] if pairs else []),
        ],
        command=command,
        made={**fit.made, **fit.marks, "goal": goal.to_json()},
        data=DATA,
        keys={name_of(line): key for line, key in keys_of(fit).items()},
    )


def keys_of(fit: FitResult) -> dict[str, int]:
    """The style of each tested extension on the whole page, by its line."""
    others = [tested.line for tested in fit.beside if tested.line not in (BARE, fit.answer.line)]
    return styles_of([fit.answer.line, *others]) | {BARE: BASE_KEY}


def title(fit: FitResult) -> str:
    """The goal as a title."""
    goal = fit.goal
    lengths = f"{goal.target_len:,} tokens, trained on {goal.facts.trained_len:,}"
    return f"The best extension for {lengths} (deployable: {goal.deployable})"


def table(fit: FitResult) -> PageTable:
    """The answer and all others that were tested, the lowest loss first."""
    keys = fit.answer.keys is not None
    lengths = [f"loss at {short(at.length)}" for at in fit.answer.by_length]
    head = ("extension", "texts", "loss", "behind", *lengths, "short", "time", *(["passkeys"] * keys), "what it is")
    return PageTable(head, tuple(_row(tested, fit) for tested in ranked_tests(fit)), ends_in_words=True)


def _row(tested: FinalTest, fit: FitResult) -> tuple[str, ...]:
    behind = "" if tested is fit.answer else interval(tested.behind)
    keys = [] if tested.keys is None else [f"{100 * tested.keys.value:.0f}%"]
    cells = (
        name_of(tested.line),
        str(tested.loss.of),
        f"{tested.loss.value:.3f}",
        behind,
        *(f"{at.loss.value:.3f}" for at in tested.by_length),
        f"{tested.damage.value:+.3f}",
        times_as_long(tested.slowdown),
    )
    return (*cells, *keys, "" if tested.line == BARE else brief(tested.extension))


def figures(fit: FitResult) -> list[ReportFigure]:
    """The final test, the front, the history, and the slowing of each pair where it is one table."""
    return [lead(fit), front(fit), history(fit), *stretches(fit)]


def lead(fit: FitResult) -> ReportFigure:
    """How far every tested extension is behind the search's choice, on texts that the search did not see."""
    keys = keys_of(fit)
    rows = [
        IntervalRow(
            name=name_of(tested.line),
            key=keys[tested.line],
            estimate=tested.behind,
            note=_note(tested, fit),
            broken=tested.behind.low > BREAK,
        )
        for tested in ranked_tests(fit)
    ]
    where = "the mean loss over the lengths" if fit.goal.lengths else f"loss at {fit.goal.target_len:,} tokens"
    across = f"{where} minus that of the search's choice, nats per token"
    chart = interval_chart(rows, across=across, zero="the search's choice", digits=3)
    question = "How far is each extension behind the search's choice?"
    caption = "On the same texts, which the search did not see; bars are 95 % intervals. A triangle is off the scale."
    head = ("extension", "behind", "low", "high", "texts", "loss", "damage", "slowdown")
    numbers = [
        (tested.line, *tested.behind, tested.loss.value, tested.damage.value, tested.slowdown)
        for tested in ranked_tests(fit)
    ]
    return ReportFigure("behind", question, caption, chart, head, tuple(numbers))


def _note(tested: FinalTest, fit: FitResult) -> str:
    """Whether it is written, or breaks a condition, and on how many texts it was tested."""
    said = ["written"] * (tested is fit.written)
    said += ["breaks the goal"] * (tested.line != BARE and not tested.keeps_to(fit.goal))
    return ", ".join(said) or f"{tested.loss.of} texts"


def ranked_tests(fit: FitResult) -> list[FinalTest]:
    """The answer and all others that were tested, the lowest loss first."""
    others = [tested for tested in fit.beside if tested.extension != fit.answer.extension]
    return sorted([fit.answer, *others], key=lambda tested: (_rank(tested), tested is not fit.answer))


def _rank(tested: FinalTest) -> float:
    """How far it is behind; what has no finite loss comes last."""
    return tested.behind.value if tested.has_loss else math.inf


def front(fit: FitResult) -> ReportFigure:
    """Long loss against short damage; the size of a point is its cost."""
    whole = [trial for trial in fit.history if trial.figures]
    places = {trial.number: figures for trial in whole if (figures := trial.figures)}
    low, high = focus(whole)
    shown = [place.damage for place in places.values() if low <= place.loss <= high]
    room = 0.06 * (max(shown) - min(shown)) or 0.02
    x = Axis("loss under long context, nats per token", low, high)
    y = Axis("rise of the loss on short texts, nats per token", min(shown) - room, max(shown) + room)
    edge = pareto([(place.loss, place.damage) for place in places.values()])
    chart = _trials_chart(whole, x, y, edge, "no other is better in both")
    numbers = tuple(
        (trial.number, space, *places[trial.number][:3])
        for space, group in _group_by_space(whole).items()
        for trial in group
    )
    question = "What does a lower loss on long texts cost on short ones?"
    caption = f"One point for each trial, as large as its time; the line is the Pareto front. {CUT}"
    head = ("trial", "space", "loss", "damage", "slowdown")
    return ReportFigure("front", question, caption, chart, head, numbers)


def _trials_chart(
    whole: Sequence[MeasuredTrial],
    x: Axis,
    y: Axis,
    corners: Sequence[tuple[float, float]],
    stair: str,
    *,
    by_number: bool = False,
) -> Chart:
    """A dot for each trial, space by space: its damage by its loss, as large as its time; or its loss by its number.

    A stair goes through the corners.
    """
    series = list[Series]()
    for n, (space, group) in enumerate(_group_by_space(whole).items()):
        places, words, sizes = [], [], []
        for trial in group:
            loss, damage, slowdown, _ = trial.figures or (math.nan,) * 4
            places.append((float(trial.number), loss) if by_number else (loss, damage))
            words.append(
                f"trial {trial.number}: loss {loss:.3f}, short texts {damage:+.3f}, time {times_as_long(slowdown)}"
            )
            sizes.append(3.5 + min(4.0, 1.5 if math.isnan(slowdown) else 1.5 * slowdown))
        across, up = map(tuple, zip(*places, strict=True))
        dots = Series(space, OTHERS + n, across, up, words=tuple(words), sizes=() if by_number else tuple(sizes))
        off = sum(bool(x.beyond(a) or y.beyond(b)) for a, b in places)
        series += scatter(dots._replace(value=f"{len(group)}" + (f", {off} off the scale" if off else "")), x, y)
    steps = [step for a, b in pairwise(corners) for step in (a, (b[0], a[1]))]
    steps += [corners[-1], (x.high, corners[-1][1])] if corners else []
    line = Series(stair, BASE_KEY, tuple(a for a, _ in steps), tuple(b for _, b in steps), look="stair", colour="ink")
    return Chart(kind="dots", panels=(Panel(x, y, (line, *series)),))


def pareto(places: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Pairs of which no other is better in both numbers, by rising first number."""
    edge: list[tuple[float, float]] = []
    for place in sorted(set(places)):
        if not edge or place[1] < edge[-1][1]:
            edge.append(place)
    return edge


def history(fit: FitResult) -> ReportFigure:
    """Every completed trial, and the best so far within the goal."""
    whole = [trial for trial in fit.history if trial.figures]
    allowed = [(trial.number, trial.figures.loss if trial.figures and trial.keeps else math.inf) for trial in whole]
    best = zip(allowed, accumulate((loss for _, loss in allowed), min), strict=True)
    x = Axis("trial", -0.5, max(trial.number for trial in whole) + 0.5, whole=True)
    stair = [(float(number), low) for (number, _), low in best if math.isfinite(low)]
    y = Axis("loss, nats per token", *focus(whole))
    chart = _trials_chart(whole, x, y, stair, "the best so far within the goal", by_number=True)
    numbers = sorted((trial.number, trial.space, trial.figures.loss) for trial in whole if trial.figures)
    question, caption = "Did the search go on improving?", f"Completed trials; the line is the best so far. {CUT}"
    head = ("trial", "space", "loss")
    return ReportFigure("history", question, caption, chart, head, tuple(numbers))


def stretches(fit: FitResult) -> list[ReportFigure]:
    """How many times more slowly each pair is rotated; none where that is not one table."""
    facts, keys = fit.goal.facts, keys_of(fit)
    compared = [fit.answer, *([fit.rival] if fit.rival and fit.rival.line != fit.answer.line else [])]
    lines = []
    for tested in compared:
        layer, known = tested.extension.at_layer(0, facts), tested.extension.builds_on(facts)
        if why_not_static(layer, known):
            return []
        table = static_table(layer, known)
        times = torch.where(table > 0, trained_theta(facts) / table, 1.0).tolist()  # 1 for pairs without rotation
        lines.append(Series(tested.line, keys[tested.line], tuple(map(float, range(len(times)))), tuple(times)))
    chart = line_chart(lines, across="pair of dimensions, fast to slow", up="slowed by", tokens=False, kind="log")
    numbers = tuple(
        (line.name, round(pair), times) for line in lines for pair, times in zip(line.x, line.y, strict=True)
    )
    question = "How much does the answer slow each pair?"
    caption = "How many times more slowly each pair rotates than in training, beside the best hand-set extension."
    head = ("extension", "pair", "times")
    return [ReportFigure("stretches", question, caption, chart, head, numbers)]


def _group_by_space(trials: Sequence[MeasuredTrial]) -> dict[str, list[MeasuredTrial]]:
    groups: dict[str, list[MeasuredTrial]] = {HandSet.name: []}
    for trial in trials:
        groups.setdefault(trial.space, []).append(trial)
    return {space: group for space, group in groups.items() if group}


def focus(whole: Sequence[MeasuredTrial]) -> tuple[float, float]:
    """Losses of the better half and of the best hand-set extension: broken ones would squeeze the rest together."""
    losses = sorted(trial.figures.loss for trial in whole if trial.figures)
    by_hand = min((trial.figures.loss for trial in whole if trial.figures and trial.seed), default=losses[0])
    low, high = losses[0], max(losses[len(losses) // 2], by_hand)
    room = max(high - low, 0.01)
    return low - room / 10, high + room / 2


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
        "written": fit.written.line,
        "breaks": fit.written.broken(fit.goal),
        "judged": [_judged_json(item, fit) for item in (fit.answer, *fit.beside)],
        "elsewhere": _elsewhere_json(fit),
        "trials": [_tried_json(item) for item in fit.history],
    }


def _elsewhere_json(fit: FitResult) -> dict[str, Any] | None:
    if fit.elsewhere is None:
        return None
    corpus, answer, beside = fit.elsewhere
    return {"corpus": corpus, "judged": [_judged_json(item, fit) for item in (answer, *beside)]}


def _judged_json(tested: FinalTest, fit: FitResult) -> dict[str, Any]:
    return {
        "line": tested.line,
        "extension": tested.extension.to_json(),
        "loss": tested.loss._asdict(),
        "behind": tested.behind._asdict(),
        "damage": tested.damage._asdict(),
        "slowdown": tested.slowdown,
        "passkeys": tested.keys._asdict() if tested.keys else None,
        "breaks": tested.broken(fit.goal),
        "by_length": [
            {"length": at.length, "loss": at.loss._asdict(), "behind": at.behind._asdict()} for at in tested.by_length
        ],
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
