"""A chart of single points in groups, with a stair through the best of them; points beyond its axes end at the edge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from markupsafe import Markup

from ropewalk.measure.report.drawing.axes import Axis, legible, ticks
from ropewalk.measure.report.drawing.elements import Point, element, path, ruler, text
from ropewalk.measure.report.drawing.figure import Canvas, drawing
from ropewalk.measure.report.drawing.names import shortened
from ropewalk.measure.report.drawing.plot import Plot, clipped, grid, headings
from ropewalk.measure.report.drawing.styles import marker, style_of

ROW = 20


class Dot(NamedTuple):
    """A point, its size, and what it is."""

    x: float
    y: float
    words: str
    size: float = 1.0


class DotGroup(NamedTuple):
    """Points that share a name, a colour and a marker."""

    name: str
    key: int
    dots: tuple[Dot, ...]


@dataclass(frozen=True, kw_only=True)
class DotChart:
    """Groups, the stair, the axes, and the words around them."""

    groups: Sequence[DotGroup]
    stair: Sequence[Point]
    stair_name: str
    x: tuple[float, float]
    y: tuple[float, float]
    across: str
    up: str


def dot_chart(chart: DotChart, canvas: Canvas, label: str) -> Markup:
    """The chart on a canvas, with its legend beside it or below it."""
    left, right, top = (56.0, canvas.width - 12.0, 46.0) if canvas.narrow else (64.0, canvas.width - 270.0, 46.0)
    bottom = top + 300
    plot = Plot(Axis(*_apart(chart.x), left, right), Axis(*_apart(chart.y), bottom, top))
    behind = grid(plot, legible(ticks(plot.x), plot.x, 48), legible(ticks(plot.y), plot.y, 18))
    names = shortened([group.name for group in chart.groups], 28)
    groups = [
        _group(group, name, plot, _legend_place(canvas, plot, n))
        for n, (group, name) in enumerate(zip(chart.groups, names, strict=True))
    ]
    x, y = _legend_place(canvas, plot, len(chart.groups))
    legend = [ruler(x - 10, y - 4, x + 10, y - 4, "stair"), text(chart.stair_name, x + 18, y, "note")]
    stair = [element("path", d=path(_stair(chart.stair, plot)), class_="stair")] if chart.stair else []
    height = y + 16 if canvas.narrow else bottom + 48
    inside = [headings(plot, chart.up, chart.across), behind, clipped(plot, *stair, room=0), *groups, *legend]
    return drawing(canvas, height, *inside, kind="dots", label=label)


def _apart(ends: tuple[float, float]) -> tuple[float, float]:
    low, high = ends
    return (low, high) if high > low else (low - 0.05, high + 0.05)


def _legend_place(canvas: Canvas, plot: Plot, n: int) -> Point:
    return (plot.left - 30, plot.bottom + 66 + ROW * n) if canvas.narrow else (plot.right + 34, plot.top + 8 + ROW * n)


def _group(group: DotGroup, name: str, plot: Plot, place: Point) -> Markup:
    beyond = sum(bool(plot.x.beyond(dot.x) or plot.y.beyond(dot.y)) for dot in group.dots)
    count = f"{len(group.dots)}" + (f", {beyond} off the scale" if beyond else "")
    x, y = place
    words = [text(name, x + 18, y, "name"), text(count, x + 22 + 7.4 * len(name), y, "note")]
    swatch = element("path", d=marker(group.key, x, y - 4, 5), class_="marker")
    dots = [_dot(group, dot, plot) for dot in group.dots]
    return element(
        "g", *dots, swatch, *words, class_=f"series {style_of(group.key)}", data_series=group.key, data_name=group.name
    )


def _dot(group: DotGroup, dot: Dot, plot: Plot) -> Markup:
    place = plot.x.kept(dot.x), plot.y.kept(dot.y)
    off = bool(plot.x.beyond(dot.x) or plot.y.beyond(dot.y))
    size = 3.0 if off else 3.5 + min(4.0, 1.5 * dot.size)
    return element(
        "path", element("title", dot.words), d=marker(group.key, *place, size), class_="dot off" if off else "dot"
    )


def _stair(points: Sequence[Point], plot: Plot) -> list[Point]:
    """Horizontal until the next point, as far as the right edge."""
    places = [(plot.x.at(x), plot.y.at(y)) for x, y in points]
    steps = [place for a, b in pairwise(places) for place in (a, (b[0], a[1]))]
    return [*steps, places[-1], (plot.right, places[-1][1])]
