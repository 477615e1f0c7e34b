"""Figures of what a comparison measured, beginning with what answers at a glance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ropewalk.measure.comparison.changes import PositionChange, change_at, changes_by_position
from ropewalk.measure.comparison.comparison import Candidate, Comparison
from ropewalk.measure.comparison.verdict import BREAK, BREAKS
from ropewalk.measure.metrics.intervals import Estimate, share
from ropewalk.measure.report.depths import loss_by_depth
from ropewalk.measure.report.drawing.build import IntervalRow, interval_chart, line_chart, trained_mark
from ropewalk.measure.report.drawing.charts import BASE_KEY, ReportFigure, Series, ShareCell, ShareMap, ShareRow
from ropewalk.measure.report.drawing.names import name_of
from ropewalk.measure.report.predictions import prediction_figure, predictions
from ropewalk.measure.report.sections import REACH, estimated
from ropewalk.measure.report.tables import ordered, short, standard
from ropewalk.measure.tasks import Task

LOSS = "nats per token"
SHORT = (
    "Below 0 it does. Other tokens are scored at each length; the base model reads those of the longest one under a"
    " window of its trained length, and lengths whose tokens it did not read have no difference."
)
CUT = "A triangle marks what is off the scale, which the extensions that do not break set."


def keys_of(comparison: Comparison) -> dict[str, int]:
    """The style of each candidate on the whole page, by its line."""
    base, *others = comparison.candidates
    return {base.line: BASE_KEY} | {candidate.line: key for key, candidate in enumerate(others)}


def headline(comparison: Comparison) -> list[ReportFigure]:
    """Which extension to use, and where each begins to differ."""
    return [change(comparison), loss_by_position(comparison)]


def figures(comparison: Comparison) -> list[ReportFigure]:
    """Every figure of a task for which there are numbers, without those of the headline."""
    drawn = [loss_by_length(comparison)] if len(comparison.lengths) > 1 else []
    measured = list(dict.fromkeys(task.name for task in comparison.tasks))
    for name in (task.name for task in _scored(comparison)):
        drawn.append(score_by_length(comparison, name))
        if _has_depths(comparison, name):
            drawn += [score_by_depth(comparison, name), loss_by_depth(comparison, name, keys_of(comparison))]
    if "repetition" in measured:
        drawn.append(repetition_by_length(comparison))
    if "damage" in measured:
        drawn.append(damage(comparison))
    if "perplexity" in measured:
        drawn.append(perplexity_by_length(comparison))
    if "longppl" in measured:
        drawn.append(longppl_by_length(comparison))
    if known := predictions(comparison):
        drawn.append(prediction_figure(known))
    return drawn


def change(comparison: Comparison) -> ReportFigure:
    """The verdict's number of every candidate, the best at the top."""
    keys, longest, trained = keys_of(comparison), comparison.lengths[-1], comparison.trained_len
    rows = [
        IntervalRow(
            name=name_of(candidate.line),
            key=keys[candidate.line],
            estimate=candidate.change,
            note=candidate.verdict.kind,
            broken=candidate.verdict.kind == BREAKS,
        )
        for candidate in ordered(comparison)
    ]
    chart = interval_chart(
        rows,
        across=f"loss at {longest:,} tokens minus the base model's {standard(comparison)}, {LOSS}",
        zero=f"base model {standard(comparison)} tokens",
        limit=(BREAK, "breaks"),
    )
    question = f"Does the model read {longest:,} tokens as well as {trained:,}?"
    question = question if longest > trained else f"What does each extension do to texts of {trained:,} tokens?"
    within = "under a window of its trained length" if comparison.by_window else "within its trained length"
    caption = f"The loss of the same last tokens, minus the base model's {within}; bars are 95 % intervals. {CUT}"
    head = ("extension", "change", "low", "high", "texts", "verdict", "slowdown", "cache_bytes")
    numbers = [(c.line, *c.change, c.verdict.kind, c.slowdown, c.cache_bytes) for c in ordered(comparison)]
    return ReportFigure("change", question, caption, chart, head, tuple(numbers))


def loss_by_position(comparison: Comparison) -> ReportFigure:
    """Where in a long text each departs from the base model; the losses themselves where the base's are not known."""
    changes = {candidate.line: changes_by_position(comparison, candidate) for candidate in comparison.candidates}
    longest = comparison.lengths[-1]
    known = bool(changes[comparison.base.line])
    words = "minus the base model's at the same position" if known else "by position"
    chart = line_chart(
        [_by_position(comparison, candidate, changes[candidate.line], known) for candidate in comparison.candidates],
        across="position in the text, tokens",
        up=f"loss minus the base model's, {LOSS}" if known else f"loss, {LOSS}",
        marks=[trained_mark(comparison.trained_len)],
        to=longest,
        signed=known,
        log="signed log" if known else "log",
    )
    caption = (
        f"Loss {words}, in texts of {longest:,} tokens;"
        f" {'below 0 is better than the base model' if known else 'lower is better'}. {CUT}"
    )
    head = ("extension", "position", "loss", "minus_base", "low", "high")
    numbers = tuple((line, at, loss, *diff[:3]) for line, rows in changes.items() for at, loss, diff in rows)
    question = "Where in a text does each extension depart from the base model?"
    return ReportFigure("loss_by_position", question, caption, chart, head, numbers)


def _by_position(
    comparison: Comparison, candidate: Candidate, changes: Sequence[PositionChange], known: bool
) -> Series:
    estimates = [row.change for row in changes]
    return Series(
        name=name_of(candidate.line),
        key=keys_of(comparison)[candidate.line],
        x=tuple(float(row.position) for row in changes),
        y=tuple(row.change.value if known else row.loss for row in changes),
        low=tuple(estimate.low for estimate in estimates) if _finite(estimates) else (),
        high=tuple(estimate.high for estimate in estimates) if _finite(estimates) else (),
        broken=candidate.verdict.kind == BREAKS,
    )


def _finite(estimates: Sequence[Estimate]) -> bool:
    """Whether there are intervals: one text has none, and the base model differs from itself by nothing."""
    ends = [end for estimate in estimates for end in (estimate.low, estimate.high)]
    return all(math.isfinite(end) for end in ends) and any(ends)


def loss_by_length(comparison: Comparison) -> ReportFigure:
    """The same last tokens after growing context."""
    estimates = {
        candidate.line: {length: change_at(comparison, candidate, length) for length in comparison.lengths}
        for candidate in comparison.candidates
    }
    up = f"loss minus the base model's {standard(comparison)}, {LOSS}"
    what = "Loss of the same last tokens after more and more context: below 0 it does."
    words = "Does more text help?", f"{SHORT if comparison.by_window else what} {CUT}"
    return _by_length(comparison, "loss_by_length", words, up, "context", "change", estimates, signed=True)


def repetition_by_length(comparison: Comparison) -> ReportFigure:
    """Accuracy on repeated text."""
    words = "Does it copy from far back?", "Next-token accuracy on half a trained length of text, repeated."
    estimates = _estimates(comparison, "repetition", "accuracy")
    return _by_length(comparison, "repetition_by_length", words, "accuracy", "repetition", "accuracy", estimates)


def perplexity_by_length(comparison: Comparison) -> ReportFigure:
    """Windows of each length, half overlapping."""
    title = next(task.title for task in comparison.tasks if task.name == "perplexity")
    words = "Perplexity of whole texts", f"In windows that overlap by half; each token counts once. {CUT}"
    estimates = _estimates(comparison, title, "strided")
    return _by_length(comparison, "perplexity_by_length", words, "perplexity", title, "strided", estimates)


def longppl_by_length(comparison: Comparison) -> ReportFigure:
    """The same key tokens in windows of each length."""
    words = "Does it use the far text where far text counts?", f"Perplexity of the same key tokens. {CUT}"
    estimates = _estimates(comparison, "longppl", "longppl")
    return _by_length(comparison, "longppl_by_length", words, "LongPPL", "longppl", "longppl", estimates)


Estimates = dict[str, dict[int, Estimate]]  # by line and length


def _estimates(comparison: Comparison, task: str, number: str) -> Estimates:
    return {
        candidate.line: {
            length: row.numbers[number] for length in comparison.lengths if (row := candidate.at(task, length))
        }
        for candidate in comparison.candidates
    }


def _by_length(
    comparison: Comparison,
    name: str,
    words: tuple[str, str],
    up: str,
    section: str,
    number: str,
    estimates: Estimates,
    *,
    signed: bool = False,
) -> ReportFigure:
    keys = keys_of(comparison)
    losses = section != "repetition"
    lines = [
        Series(
            name=name_of(candidate.line),
            key=keys[candidate.line],
            x=tuple(float(length) for length in by_length),
            y=tuple(estimate.value for estimate in by_length.values()),
            low=tuple(estimate.low for estimate in by_length.values()),
            high=tuple(estimate.high for estimate in by_length.values()),
            broken=losses and candidate.verdict.kind == BREAKS,
        )
        for candidate in comparison.candidates
        if (by_length := estimates[candidate.line])
    ]
    chart = line_chart(
        lines,
        across="context, tokens",
        up=up,
        marks=[trained_mark(comparison.trained_len)],
        at=comparison.lengths,
        signed=signed,
        log=None if not losses else "signed log" if signed else "log",
    )
    numbers = tuple(
        (line, length, *estimate[:3]) for line, rows in estimates.items() for length, estimate in rows.items()
    )
    head = ("extension", "length", number, "low", "high")
    return ReportFigure(name, *words, chart, head, numbers, section)


def damage(comparison: Comparison) -> ReportFigure:
    """The loss that is added to short texts, the least at the top."""
    keys, trained = keys_of(comparison), comparison.trained_len
    title = next(task.title for task in comparison.tasks if task.name == "damage")
    added = {
        candidate.line: row.numbers["loss"]
        for candidate in comparison.candidates
        if (row := candidate.at(title, trained))
    }
    rows = [
        IntervalRow(name_of(line), keys[line], estimate, broken=estimate.low > BREAK)
        for line, estimate in sorted(added.items(), key=lambda pair: (math.isnan(pair[1].value), pair[1].value))
    ]
    across = f"loss on texts of {trained:,} tokens minus the base model's, {LOSS}"
    chart = interval_chart(rows, across=across, zero="base model")
    question = "What does it cost on short texts?"
    caption = f"Texts of the trained length; bars are 95 % intervals. {CUT}"
    numbers = tuple((line, *estimate) for line, estimate in added.items())
    head = ("extension", "loss", "low", "high", "texts")
    return ReportFigure("damage", question, caption, chart, head, numbers, title)


def _scored(comparison: Comparison) -> list[Task]:
    """The first task of each name that has a score."""
    return list({task.name: task for task in reversed(comparison.tasks) if task.scored}.values())[::-1]


def _has_depths(comparison: Comparison, name: str) -> bool:
    rows = [row for candidate in comparison.candidates for row in candidate.rows if row.task.name == name]
    return any("depth" in sample for row in rows for sample in row.samples)


def score_by_length(comparison: Comparison, name: str) -> ReportFigure:
    """The score of a task as a map; the mean over all tasks of that name, which alone has no interval."""
    titles = [task.title for task in comparison.tasks if task.name == name]
    headline = next(task.headline for task in comparison.tasks if task.name == name)
    estimates = _estimates(comparison, titles[0], headline) if len(titles) == 1 else _means(comparison, name)
    question = "How many passkeys are found?" if name == "passkey" else f"How much of {name} is right?"
    over = "" if len(titles) == 1 else f", averaged over {', '.join(titles)}"
    caption = f"Share correct, by length{over}."
    keys = keys_of(comparison)
    rows = [
        ShareRow(
            name_of(candidate.line),
            keys[candidate.line],
            tuple(
                _cell(estimates[candidate.line].get(length), f"{name_of(candidate.line)}, {length:,} tokens")
                for length in comparison.lengths
            ),
        )
        for candidate in ordered(comparison)
    ]
    groups = [(f"{length:,}", 1) for length in comparison.lengths]
    chart = ShareMap(rows=rows, groups=groups, columns=(), above="tokens", ends=("0%", "100%"))
    numbers = tuple(
        (line, length, *estimate[:3]) for line, row in estimates.items() for length, estimate in row.items()
    )
    head = ("extension", "length", "score" if len(titles) > 1 else headline, "low", "high")
    section = titles[0] if len(titles) == 1 else REACH
    return ReportFigure(f"{name}_by_length", question, caption, chart, head, numbers, section)


def _means(comparison: Comparison, name: str) -> Estimates:
    return {
        candidate.line: {
            length: Estimate(score, -math.inf, math.inf, 1) for length, score in candidate.scores(name).items()
        }
        for candidate in comparison.candidates
    }


def _cell(estimate: Estimate | None, place: str) -> ShareCell:
    if estimate is None:
        return ShareCell(math.nan, f"{place}: not measured")
    return ShareCell(estimate.value, f"{place}: {estimated(estimate)}")


def score_by_depth(comparison: Comparison, name: str) -> ReportFigure:
    """One map of all candidates: depths side by side in each length."""
    grids = {candidate.line: _grid(candidate, name) for candidate in comparison.candidates}
    depths = {
        length: sorted({depth for grid in grids.values() for n, depth in grid if n == length})
        for length in comparison.lengths
    }
    columns = [(length, depth) for length in comparison.lengths for depth in depths[length]]
    keys = keys_of(comparison)
    rows = [
        ShareRow(
            name_of(candidate.line),
            keys[candidate.line],
            tuple(
                _cell(
                    grids[candidate.line].get(cell),
                    f"{name_of(candidate.line)}, {cell[0]:,} tokens, depth {cell[1]:.0%}",
                )
                for cell in columns
            ),
        )
        for candidate in ordered(comparison)
    ]
    chart = ShareMap(
        rows=rows,
        groups=[(short(length), len(depths[length])) for length in comparison.lengths if depths[length]],
        columns=[f"{depth:.0%}" for _, depth in columns],
        above="tokens, and depth in the text",
        ends=("missed", "found"),
    )
    question = f"Where in the text is {'a passkey' if name == 'passkey' else 'it'} found?"
    caption = "Share correct, by length and by depth in the text: 0% is its beginning, far from the question."
    numbers: list[tuple[Any, ...]] = [
        (line, *cell, *estimate[:3]) for line, grid in grids.items() for cell, estimate in sorted(grid.items())
    ]
    head = ("extension", "length", "depth", "right", "low", "high")
    return ReportFigure(f"{name}_by_depth", question, caption, chart, head, tuple(numbers), name)


def _grid(candidate: Candidate, name: str) -> dict[tuple[int, float], Estimate]:
    """The share correct in each cell of length and depth."""
    cells: dict[tuple[int, float], list[bool]] = {}
    for row in candidate.rows:
        for sample in row.samples if row.task.name == name else ():
            cells.setdefault((row.length, sample["depth"]), []).append(bool(sample["right"]))
    return {cell: share(sum(right), len(right)) for cell, right in cells.items()}
