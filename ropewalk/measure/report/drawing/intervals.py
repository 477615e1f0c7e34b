"""One row for each extension: a dot with its interval. Rows that break do not set the scale but end at its edge."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from markupsafe import Markup

from ropewalk.measure.metrics.intervals import Estimate
from ropewalk.measure.report.drawing.axes import Axis, legible, signed, spanning, ticks
from ropewalk.measure.report.drawing.elements import element, joined, path, ruler, text
from ropewalk.measure.report.drawing.figure import Canvas, drawing
from ropewalk.measure.report.drawing.names import shortened
from ropewalk.measure.report.drawing.plot import Plot, grid
from ropewalk.measure.report.drawing.styles import marker, style_of

ROOM = 0.15  # of an interval, how much beyond the dots sets the scale
GIVEN_UP = 3.0  # an interval that is so many times as wide as all dots are apart is cut off


class IntervalRow(NamedTuple):
    """An extension with its number."""

    name: str
    key: int
    estimate: Estimate
    note: str = ""  # a word or two after the number
    broken: bool = False


@dataclass(frozen=True, kw_only=True)
class IntervalChart:
    """Rows from the top, and the words around them."""

    rows: Sequence[IntervalRow]
    across: str
    zero: str  # what 0 is
    limit: float | None = None  # beyond it a row is broken
    limit_name: str = ""
    digits: int = 2

    def written(self, value: float) -> str:
        """A difference with its sign."""
        if not math.isfinite(value):
            return "no number" if math.isnan(value) else ("+∞" if value > 0 else "−∞")
        return signed(value, self.digits)


def interval_chart(chart: IntervalChart, canvas: Canvas, label: str) -> Markup:
    """The chart on a canvas; on a narrow one names stand above their rows."""
    step, top = (44.0 if canvas.narrow else 26.0), 52.0
    bottom = top + step * len(chart.rows)
    left, right = (20.0, canvas.width - 20.0) if canvas.narrow else (200.0, canvas.width - _aside(chart))
    plot = Plot(_axis(chart, left, right), Axis(0, 1, bottom, top))
    across = legible(ticks(plot.x, 5 if canvas.narrow else 8), plot.x, 48)
    shown = shortened([row.name for row in chart.rows], 24 if canvas.narrow else 26)
    rows = [
        _row(chart, row, name, plot, canvas, top + step * (n + (0.72 if canvas.narrow else 0.5)))
        for n, (row, name) in enumerate(zip(chart.rows, shown, strict=True))
    ]
    inside = [grid(plot, across, []), _reference(chart, plot), *rows]
    words = text(chart.across, canvas.width / 2 if canvas.narrow else (left + right) / 2, bottom + 40, "unit middle")
    return drawing(canvas, bottom + 52, *inside, words, kind="intervals", label=label)


def _aside(chart: IntervalChart) -> float:
    """Pixels for the numbers and, where there are any, the notes beside a wide plot."""
    return 326.0 if any(row.note for row in chart.rows) else 190.0


def _axis(chart: IntervalChart, left: float, right: float) -> Axis:
    steady = [row.estimate for row in chart.rows if not row.broken and math.isfinite(row.estimate.value)]
    dots = [0.0, *(estimate.value for estimate in steady or [row.estimate for row in chart.rows])]
    finite = [value for value in dots if math.isfinite(value)]
    width = max(max(finite) - min(finite), 0.02)
    low, high = min(finite) - GIVEN_UP * width, max(finite) + GIVEN_UP * width
    ends = [end for estimate in steady for end in (estimate.low, estimate.high) if low <= end <= high]
    return spanning([*finite, *ends], left, right, room=ROOM / 2)


def _reference(chart: IntervalChart, plot: Plot) -> Markup:
    """Zero, what is better and worse than it, and the limit."""
    x = plot.x.at(0.0)
    parts = [
        ruler(x, plot.top - 6, x, plot.bottom, "zero"),
        text(chart.zero, _within(plot, x, 4.1 * len(chart.zero)), plot.top - 32, "note middle"),
        text("◀ better", x - 8, plot.top - 12, "note end"),
        text("worse ▶", x + 8, plot.top - 12, "note"),
    ]
    if chart.limit is not None and not plot.x.beyond(chart.limit):
        limit = plot.x.at(chart.limit)
        parts.append(ruler(limit, plot.top - 6, limit, plot.bottom, "dotted"))
        if limit - x > 130:
            parts.append(text(chart.limit_name, limit + 5, plot.top - 12, "note"))
    return joined(parts)


def _within(plot: Plot, x: float, half: float) -> float:
    return min(max(x, plot.left + half), plot.right - half)


def _row(chart: IntervalChart, row: IntervalRow, name: str, plot: Plot, canvas: Canvas, y: float) -> Markup:
    value, low, high, _ = row.estimate
    words = _words(chart, row)
    inside = [element("title", f"{row.name}: {words} {row.note}".strip()), _hit(canvas, y)]
    inside.append(ruler(plot.left, y, plot.right, y, "guide"))
    side = 0 if math.isnan(value) else plot.x.beyond(value)
    if math.isfinite(low) and math.isfinite(high) and not side:
        inside.append(ruler(plot.x.kept(low), y, plot.x.kept(high), y, "interval"))
    if side:
        edge, tip = (plot.right - 9, plot.right) if side > 0 else (plot.left + 9, plot.left)
        inside.append(element("path", d=path([(edge, y - 6), (tip, y), (edge, y + 6)], close=True), class_="cut"))
    elif not math.isnan(value):
        inside.append(element("path", d=marker(row.key, plot.x.at(value), y, 5), class_="marker"))
    inside += _named(chart, row, name, words, canvas, y)
    return element("g", *inside, class_=f"series {style_of(row.key)}", data_series=row.key, data_name=row.name)


def _named(chart: IntervalChart, row: IntervalRow, name: str, words: str, canvas: Canvas, y: float) -> list[Markup]:
    """The name and the number: beside the row, or above it."""
    if canvas.narrow:
        return [text(name, 20, y - 14, "name"), text(words, canvas.width - 20, y - 14, "value end")]
    x = canvas.width - _aside(chart) + 14
    return [
        text(name, 8, y + 4, "name"),
        text(words, x, y + 4, "value"),
        text(row.note, canvas.width - 4, y + 4, "note end"),
    ]


def _words(chart: IntervalChart, row: IntervalRow) -> str:
    value, low, high, _ = row.estimate
    interval = f" [{chart.written(low)}, {chart.written(high)}]" if math.isfinite(low) and math.isfinite(high) else ""
    return chart.written(value) + interval


def _hit(canvas: Canvas, y: float) -> Markup:
    top, height = (y - 30, 44) if canvas.narrow else (y - 13, 26)
    return element("rect", x=0, y=top, width=canvas.width, height=height, class_="hit")
