"""Figures of what a comparison measured, beginning with what answers at a glance; `score_maps.py` has the maps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

from ropewalk.measure.comparison.changes import PositionChange, change_at, changes_by_position
from ropewalk.measure.comparison.comparison import Candidate, Comparison
from ropewalk.measure.comparison.verdict import BREAK, BREAKS
from ropewalk.measure.metrics.intervals import Estimate
from ropewalk.measure.report.drawing.build import IntervalRow, interval_chart, line_chart, trained_mark
from ropewalk.measure.report.drawing.charts import BASE_KEY, ReportFigure, Series, styles_of
from ropewalk.measure.report.drawing.names import name_of
from ropewalk.measure.report.tables import ordered, standard

LOSS = "nats per token"
SHORT = (
    "Below 0 it does. Other tokens are scored at each length; the base model reads those of the longest one under a"
    " window of its trained length, and lengths whose tokens it did not read have no difference."
)
CUT = (
    "The scale fits the extensions that do not break. A triangle at the edge stands for one that lies beyond it, and a"
    " bar that ends at the edge goes on."
)


def keys_of(comparison: Comparison) -> dict[str, int]:
    """The style of each candidate on the whole page, by its line."""
    base, *others = comparison.candidates
    return {base.line: BASE_KEY} | styles_of([candidate.line for candidate in others])


def headline(comparison: Comparison) -> list[ReportFigure]:
    """Which extension to use, and where each begins to differ."""
    return [change(comparison), loss_by_position(comparison)]


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
    """Where in a long text the base model breaks, and which extensions read on; the differences are in the numbers."""
    changes = {candidate.line: changes_by_position(comparison, candidate) for candidate in comparison.candidates}
    longest = comparison.lengths[-1]
    chart = line_chart(
        [_by_position(comparison, candidate, changes[candidate.line]) for candidate in comparison.candidates],
        across="position in the text, tokens",
        up=f"loss, {LOSS}",
        marks=[trained_mark(comparison.trained_len)],
        to=longest,
        log="log",
    )
    caption = f"Loss by position, in texts of {longest:,} tokens; lower is better."
    head = ("extension", "position", "loss", "minus_base", "low", "high")
    numbers = tuple((line, at, loss, *diff[:3]) for line, rows in changes.items() for at, loss, diff in rows)
    question = "Where in a text does the base model break, and what reads on?"
    return ReportFigure("loss_by_position", question, caption, chart, head, numbers)


def _by_position(comparison: Comparison, candidate: Candidate, changes: Sequence[PositionChange]) -> Series:
    return Series(
        name=name_of(candidate.line),
        key=keys_of(comparison)[candidate.line],
        x=tuple(float(row.position) for row in changes),
        y=tuple(row.loss for row in changes),
    )


Numbers: TypeAlias = dict[str, dict[int, Estimate]]  # by line and length


def numbers_at(comparison: Comparison, task: str, number: str) -> Numbers:
    """One number of a task at every length where it was measured."""
    return {
        candidate.line: {
            length: row.numbers[number] for length in comparison.lengths if (row := candidate.at(task, length))
        }
        for candidate in comparison.candidates
    }


def loss_by_length(comparison: Comparison) -> ReportFigure:
    """The same last tokens after growing context."""
    changes = {
        candidate.line: {length: change_at(comparison, candidate, length) for length in comparison.lengths}
        for candidate in comparison.candidates
    }
    what = "Loss of the same last tokens after more and more context: below 0 it does."
    return _by_length(
        comparison,
        ("loss_by_length", "Does more text help?", f"{SHORT if comparison.by_window else what} {CUT}"),
        f"loss minus the base model's {standard(comparison)}, {LOSS}",
        "change",
        changes,
        signed=True,
    )


def repetition_by_length(comparison: Comparison) -> ReportFigure:
    """Accuracy on repeated text."""
    words = "Does it copy from far back?", "Next-token accuracy on half a trained length of text, repeated."
    accuracy = numbers_at(comparison, "repetition", "accuracy")
    named = ("repetition_by_length", *words)
    return _by_length(comparison, named, "accuracy", "accuracy", accuracy, losses=False)


def perplexity_by_length(comparison: Comparison) -> ReportFigure:
    """Windows of each length, half overlapping."""
    words = "Perplexity of whole texts", f"In windows that overlap by half; each token counts once. {CUT}"
    strided = numbers_at(comparison, "perplexity", "strided")
    return _by_length(comparison, ("perplexity_by_length", *words), "perplexity", "strided", strided)


def longppl_by_length(comparison: Comparison) -> ReportFigure:
    """The same key tokens in windows of each length."""
    words = "Does it use the far text where far text counts?", f"Perplexity of the same key tokens. {CUT}"
    longppl = numbers_at(comparison, "longppl", "longppl")
    return _by_length(comparison, ("longppl_by_length", *words), "LongPPL", "longppl", longppl)


def _by_length(
    comparison: Comparison,
    named: tuple[str, str, str],
    up: str,
    number: str,
    estimates: Numbers,
    *,
    losses: bool = True,
    signed: bool = False,
) -> ReportFigure:
    """A line for each candidate; `losses` may break, and have a logarithmic scale."""
    keys = keys_of(comparison)
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
    numbers = tuple((line, length, *one[:3]) for line, rows in estimates.items() for length, one in rows.items())
    return ReportFigure(*named, chart, ("extension", "length", number, "low", "high"), numbers)


def damage(comparison: Comparison) -> ReportFigure:
    """The loss that is added to short texts, the least at the top."""
    keys, trained = keys_of(comparison), comparison.trained_len
    added = {
        candidate.line: row.numbers["loss"]
        for candidate in comparison.candidates
        if (row := candidate.at("damage", trained))
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
    return ReportFigure("damage", question, caption, chart, head, numbers)
