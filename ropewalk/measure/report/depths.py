"""Position bias in the report: a map of the answer's loss by length and depth, and its numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ropewalk.measure.comparison.comparison import Candidate, Comparison
from ropewalk.measure.metrics.correlation import BANDS, PositionBias, position_bias
from ropewalk.measure.report.drawing.charts import ReportFigure, ShareCell, ShareMap, ShareRow
from ropewalk.measure.report.drawing.names import name_of
from ropewalk.measure.report.sections import estimated
from ropewalk.measure.report.tables import ordered, short

FULL = 6.0  # nats per token, from which a cell is as dark as it gets


def biases(candidate: Candidate) -> dict[str, dict[int, PositionBias]]:
    """The position bias of every task whose samples have a depth and a loss, by length."""
    by_task: dict[str, dict[int, PositionBias]] = {}
    for row in candidate.rows:
        if row.samples and {"depth", "loss"} <= row.samples[0].keys():
            by_task.setdefault(row.task.title, {})[row.length] = position_bias(row.samples)
    return by_task


def biases_json(candidate: Candidate) -> dict[str, Any]:
    """The same for JSON, with the intervals of all bands."""
    return {
        task: [{"length": length, **bias.to_json()} for length, bias in by_length.items()]
        for task, by_length in biases(candidate).items()
    }


def loss_by_depth(comparison: Comparison, name: str, keys: Mapping[str, int]) -> ReportFigure:
    """One map of all candidates: bands of depth side by side in each length."""
    of_task = {candidate.line: biases(candidate).get(name, {}) for candidate in comparison.candidates}
    lengths = [length for length in comparison.lengths if any(length in bias for bias in of_task.values())]
    rows = [
        ShareRow(
            name_of(candidate.line),
            keys[candidate.line],
            tuple(
                _cell(of_task[candidate.line].get(length), band, f"{name_of(candidate.line)}, {length:,} tokens")
                for length in lengths
                for band in range(BANDS)
            ),
        )
        for candidate in ordered(comparison)
    ]
    chart = ShareMap(
        rows=rows,
        groups=[(short(length), BANDS) for length in lengths],
        columns=[f"{band / BANDS:.0%}" for _ in lengths for band in range(BANDS)],
        above="tokens, and depth in the text from",
        ends=("0 nats", f"{FULL:g} or more"),
    )
    caption = (
        "Loss of the right answer in nats per token, by length and by depth in the text: 0% is its beginning, far"
        " from the question. Lighter is better; a row that is darker in its middle loses what stands there."
    )
    numbers = tuple(
        (line, length, band / BANDS, *loss)
        for line, by_length in of_task.items()
        for length, bias in by_length.items()
        for band, loss in bias.bands.items()
    )
    head = ("extension", "length", "depth_from", "loss", "low", "high", "samples")
    title = f"Where in the text is the answer of {name} easy?"
    return ReportFigure(f"{name}_loss_by_depth", title, caption, chart, head, numbers, name)


def _cell(bias: PositionBias | None, band: int, place: str) -> ShareCell:
    """A shade of the loss, with the loss in it."""
    place = f"{place}, depth {band / BANDS:.0%} to {(band + 1) / BANDS:.0%}"
    loss = bias.bands.get(band) if bias else None
    if loss is None or not math.isfinite(loss.value):
        return ShareCell(math.nan, f"{place}: {'not measured' if loss is None else 'no number'}")
    return ShareCell(min(loss.value / FULL, 1.0), f"{place}: {estimated(loss)} nats", f"{loss.value:.1f}")
