"""A map of shares: a row for each extension, columns in groups, and the number in every cell that has room for it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from markupsafe import Markup

from ropewalk.measure.report.drawing.elements import element, joined, text
from ropewalk.measure.report.drawing.figure import Canvas, drawing, legend_bar
from ropewalk.measure.report.drawing.names import shortened
from ropewalk.measure.report.drawing.styles import style_of

GAP, HALF = 10.0, 0.55  # pixels between groups; the share from which a number is written in light letters
ROOM = 32.0  # pixels that a number needs


class ShareCell(NamedTuple):
    """A share, NaN where there is none, what it is in words, and what stands in the cell if that is not the share."""

    share: float
    words: str
    label: str = ""


class ShareRow(NamedTuple):
    """An extension with a share for every column."""

    name: str
    key: int
    cells: tuple[ShareCell, ...]


@dataclass(frozen=True, kw_only=True)
class ShareMap:
    """Rows, groups of columns with their names and sizes, and the words around them."""

    rows: Sequence[ShareRow]
    groups: Sequence[tuple[str, int]]
    columns: Sequence[str]  # their names; empty where the groups say enough
    above: str
    legend: tuple[str, str]


def share_map(chart: ShareMap, canvas: Canvas, label: str) -> Markup:
    """The map on a canvas; on a narrow one names stand above their rows."""
    left, right, top = (8.0, canvas.width - 8.0, 100.0) if canvas.narrow else (210.0, canvas.width - 8.0, 74.0)
    step, height = (44.0, 22.0) if canvas.narrow else (26.0, 22.0)
    places = _places(chart, left, right)
    names = shortened([row.name for row in chart.rows], 50 if canvas.narrow else 26)
    rows = [
        _row(row, name, places, canvas, top + step * n + (18 if canvas.narrow else 0), height)
        for n, (row, name) in enumerate(zip(chart.rows, names, strict=True))
    ]
    legend = legend_bar(chart.legend, canvas.width - 190, 42 if canvas.narrow else 20)
    bottom = top + step * len(chart.rows) + 8
    return drawing(canvas, bottom, _head(chart, places, canvas, top), legend, *rows, kind="shares", label=label)


def _places(chart: ShareMap, left: float, right: float) -> list[tuple[float, float]]:
    """Left edge and width of every column."""
    count = sum(size for _, size in chart.groups)
    gap = min(GAP, (right - left) / 4 / max(1, len(chart.groups)))
    width = (right - left - gap * (len(chart.groups) - 1)) / max(1, count)
    group_of = [number for number, (_, size) in enumerate(chart.groups) for _ in range(size)]
    return [(left + column * width + number * gap, width) for column, number in enumerate(group_of)]


def _head(chart: ShareMap, places: Sequence[tuple[float, float]], canvas: Canvas, top: float) -> Markup:
    parts, column = [text(chart.above, places[0][0] if places else 8, 20, "unit")], 0
    for name, size in chart.groups:
        first, (last, width) = places[column][0], places[column + size - 1]
        y = top - (22 if chart.columns else 8)
        parts.append(text(name, (first + last + width) / 2, y, "tick middle strong"))
        if chart.columns and width >= ROOM:
            inner = range(column, column + size)
            parts += [text(chart.columns[n], places[n][0] + width / 2, top - 7, "tick middle") for n in inner]
        elif chart.columns and size > 1 and width * size >= 2 * ROOM:
            parts.append(text(chart.columns[column], first, top - 7, "tick"))
            parts.append(text(chart.columns[column + size - 1], last + width, top - 7, "tick end"))
        column += size
    return element("g", joined(parts), class_="scale", aria_hidden="true")


def _row(
    row: ShareRow, name: str, places: Sequence[tuple[float, float]], canvas: Canvas, top: float, height: float
) -> Markup:
    words = text(name, 8, top - 5, "name") if canvas.narrow else text(name, 8, top + 16, "name")
    hit = element(
        "rect",
        x=0,
        y=top - (18 if canvas.narrow else 2),
        width=canvas.width,
        height=44 if canvas.narrow else 26,
        class_="hit",
    )
    cells = [
        part for cell, (x, width) in zip(row.cells, places, strict=True) for part in _cell(cell, x, top, width, height)
    ]
    return element(
        "g", hit, words, *cells, class_=f"series {style_of(row.key)}", data_series=row.key, data_name=row.name
    )


def _cell(cell: ShareCell, x: float, top: float, width: float, height: float) -> list[Markup]:
    """A square with its words as a title; an empty frame where there is no number."""
    place = {"x": x + 0.5, "y": top, "width": width - 1, "height": height}
    title = element("title", cell.words)
    if math.isnan(cell.share):
        return [element("rect", title, **place, class_="hole")]
    shares = [
        element("rect", **place, class_="under"),
        element("rect", title, **place, class_="shade", fill_opacity=round(cell.share, 3)),
    ]
    if width >= ROOM:
        side = "on" if cell.share > HALF else "off"
        shares.append(text(cell.label or f"{cell.share:.0%}", x + width / 2, top + height - 6, f"cell middle {side}"))
    return shares
