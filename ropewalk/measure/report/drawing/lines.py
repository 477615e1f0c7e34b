"""A line chart: lines with bands, and labels at their ends or in a list below a narrow plot.

Lines that break do not set the scale: they end at its edge, with a mark.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from markupsafe import Markup

from ropewalk.measure.report.drawing.axes import (
    MINUS,
    Axis,
    Kind,
    Tick,
    legible,
    length_ticks,
    short,
    signed,
    spanning,
    ticks,
)
from ropewalk.measure.report.drawing.elements import Point, element, path, ruler, text
from ropewalk.measure.report.drawing.figure import Canvas, drawing
from ropewalk.measure.report.drawing.names import columns, shortened, visible
from ropewalk.measure.report.drawing.plot import Plot, clipped, grid, headings, upright
from ropewalk.measure.report.drawing.styles import marker, style_of

LABEL, ROW = 18, 20  # pixels between labels beside a plot, and below it
LONGEST_LABEL, LETTER = 26, 7.3  # letters of a label, and the pixels of one
BEFORE, VALUE = 54, 66  # pixels of a label before its name, and of its number
MOST_MARKED = 12  # points that have markers
CALM = 2  # bands that can be shown at once
UP, DOWN = "▲", "▼"  # beyond the scale


class ChartLine(NamedTuple):
    """Numbers of one extension, or of another thing that has a name."""

    name: str
    key: int  # its style, and what it is on the whole page
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    broken: bool = False  # it does not set the scale
    thin: bool = False  # of two lines of one extension
    also: tuple[int, ...] = ()  # the keys of others that have the same line

    @property
    def last(self) -> float:
        """The last number; NaN where there is none."""
        return next((value for value in reversed(self.y) if not math.isnan(value)), math.nan)


@dataclass(frozen=True, kw_only=True)
class LineChart:
    """Lines, and the words around them."""

    lines: Sequence[ChartLine]
    across: str
    up: str
    trained_len: int | None = None  # marked by a dotted line
    across_mark: tuple[float, str] | None = None  # another dotted line, with its name
    at: Sequence[int] = ()  # lengths that are measured, on a logarithmic axis; else positions from 0
    to: float | None = None  # the end of an axis of positions
    digits: int = 2
    signed: bool = False  # numbers are differences
    log: Kind = "log"  # what the logarithmic drawing is
    from_zero: bool = False
    kind: Kind = "even"  # of the usual drawing
    across_log: bool = False
    tokens: bool = True  # numbers across are tokens

    def written(self, value: float) -> str:
        """A number beside a label."""
        if not math.isfinite(value):
            return "-" if math.isnan(value) else ("∞" if value > 0 else "−∞")
        return signed(value, self.digits) if self.signed else f"{value:.{self.digits}f}".replace("-", MINUS)


def line_chart(chart: LineChart, canvas: Canvas, label: str) -> Markup:
    """The chart on a canvas: labels beside the plot, or below it where that is narrow."""
    plot = _plot(chart, canvas)
    chart = replace(chart, lines=[_on(line, plot.x) for line in chart.lines])
    across, up = _ticks(chart, plot)
    marks = [(float(chart.trained_len), "trained length")] if chart.trained_len is not None else []
    marks += [chart.across_mark] if chart.across_mark is not None else []
    noted = [upright(plot, value, words) for value, words in marks]
    drawn = [_series(chart, line, plot) for line in chart.lines]
    groups = _labelled(chart, canvas, plot, drawn)
    below = plot.bottom + 46 + (ROW * len(chart.lines) + 14 if canvas.narrow else 0)
    pointer = element(
        "g", ruler(0, plot.top, 0, plot.bottom, "pointer"), text("", 0, plot.bottom + 34, "at middle"), class_="cursor"
    )
    many = sum(bool(line.low) for line in chart.lines) > CALM
    inside = [headings(plot, chart.up, chart.across), grid(plot, across, up), *noted]
    lines = element("g", *groups, class_="lines many" if many else "lines", data_plot=_edges(plot))
    return drawing(canvas, below, *inside, lines, pointer, kind="lines", label=label)


def _plot(chart: LineChart, canvas: Canvas) -> Plot:
    beside = BEFORE + LETTER * max((columns(name) for name in _names(chart, canvas)), default=0) + VALUE
    left, right, top = (48.0, canvas.width - 12.0, 46.0) if canvas.narrow else (60.0, canvas.width - beside, 46.0)
    height = 240.0 if canvas.narrow else max(300.0, LABEL * (len(chart.lines) - 1) + 10.0)
    kind: Kind = chart.log if canvas.log else chart.kind
    steady = [line for line in chart.lines if not line.broken]
    setting = chart.lines if canvas.log or not steady else steady
    values = [value for line in setting for value in line.y]
    zero = [0.0] if chart.from_zero or chart.signed else []
    y = spanning([*values, *zero], top + height, top, kind)
    if chart.from_zero and kind == "even":
        y = Axis(0.0, y.high, y.start, y.end)
    return Plot(_across(chart, left, right), y)


def _on(line: ChartLine, axis: Axis) -> ChartLine:
    """The points that are on the axis across: a logarithmic one has no 0."""
    kept = [n for n, x in enumerate(line.x) if not axis.beyond(x)]
    x, y, low, high = (tuple(values[n] for n in kept) if values else () for values in line[2:6])
    return line._replace(x=x, y=y, low=low, high=high)


def _names(chart: LineChart, canvas: Canvas) -> list[str]:
    return shortened([line.name for line in chart.lines], 34 if canvas.narrow else LONGEST_LABEL)


def _across(chart: LineChart, left: float, right: float) -> Axis:
    if chart.at:
        return spanning(chart.at, left, right, "log", room=0.04)
    places = [value for line in chart.lines for value in line.x] or [0.0]
    if chart.across_log:
        low = max(1.0, min(places))
        return Axis(low, max(chart.to or max(places), 2 * low), left, right, "log")
    low = 0.0 if chart.tokens else min(places)
    return Axis(low, max(chart.to or max(places), low + 1), left, right)


def _ticks(chart: LineChart, plot: Plot) -> tuple[list[Tick], list[Tick]]:
    across = [Tick(length, short(length)) for length in chart.at]
    if not across:
        across = (length_ticks if chart.tokens else ticks)(plot.x, 6 if plot.right > 500 else 5)
    return legible(across, plot.x, 40), legible(ticks(plot.y), plot.y, 18)


def _series(chart: LineChart, line: ChartLine, plot: Plot) -> list[Markup]:
    """The band, the line, its markers, and a mark where it leaves the scale."""
    points = [(plot.x.at(x), plot.y.at(y)) for x, y in zip(line.x, line.y, strict=True)]
    band = [*_edge(line, line.high, plot), *reversed(_edge(line, line.low, plot))] if line.low else []
    whole = [element("path", d=path(points), class_="line")] if path(points) else []
    if band:
        whole.insert(0, element("path", d=path(band, close=True), class_="band"))
    places = [(x, y) for x, y in points if not math.isnan(y)]
    if len(places) <= MOST_MARKED or len(points) <= MOST_MARKED:
        whole += [element("path", d=marker(line.key, *place), class_="marker") for place in places]
    return [clipped(plot, *whole), *_cut(line, plot)]


def _edge(line: ChartLine, values: Sequence[float], plot: Plot) -> list[Point]:
    """One side of a band; where a number has no interval, the number itself."""
    known = (value if not math.isnan(value) else y for value, y in zip(values, line.y, strict=True))
    places = [(plot.x.at(x), plot.y.at(value)) for x, value in zip(line.x, known, strict=True)]
    return [place for place in places if not math.isnan(place[1])]


def _cut(line: ChartLine, plot: Plot) -> list[Markup]:
    """A triangle where the line first leaves the scale."""
    before: Point | None = None
    for x, y in zip(line.x, line.y, strict=True):
        point, side = (plot.x.at(x), plot.y.at(y)), plot.y.beyond(y)
        if side:
            edge, tip = (plot.top + 9, plot.top) if side > 0 else (plot.bottom - 9, plot.bottom)
            place = _crossing(before, point, tip) if before else point[0]
            corners = [(place - 5, edge), (place, tip), (place + 5, edge)]
            return [element("path", d=path(corners, close=True), class_="cut")]
        before = None if math.isnan(y) else point
    return []


def _crossing(a: Point, b: Point, edge: float) -> float:
    """Where the line between two points meets an edge."""
    return a[0] + (b[0] - a[0]) * (edge - a[1]) / (b[1] - a[1])


def _labelled(chart: LineChart, canvas: Canvas, plot: Plot, drawn: Sequence[list[Markup]]) -> list[Markup]:
    """Every line with its label, in the order of the labels: from the largest last number to the smallest."""
    shown = _names(chart, canvas)
    order = sorted(range(len(drawn)), key=lambda n: -_rank(chart.lines[n]))
    ends = [plot.y.kept(line.last) if not math.isnan(line.last) else plot.bottom for line in chart.lines]
    places = spread([ends[index] for index in order], LABEL, plot.top + 4, plot.bottom)
    groups = []
    for row, (index, place) in enumerate(zip(order, places, strict=True)):
        value = _value(chart, chart.lines[index], plot)
        if canvas.narrow:
            label = _row(plot, shown[index], value, plot.bottom + 64 + ROW * row)
        else:
            label = _aside(canvas, plot, shown[index], value, ends[index], place)
        groups.append(_group(chart, chart.lines[index], plot, [*drawn[index], *label]))
    return groups


def _rank(line: ChartLine) -> float:
    """The last number; a line without one comes last."""
    return -math.inf if math.isnan(line.last) else line.last


def _group(chart: LineChart, line: ChartLine, plot: Plot, inside: Sequence[Markup]) -> Markup:
    """What belongs to a line, with what the script needs of it."""
    return element(
        "g",
        element("title", f"{line.name}: {_value(chart, line, plot)}"),
        *inside,
        class_=f"series {style_of(line.key)}{' thin' if line.thin else ''}",
        data_series=" ".join(map(str, (line.key, *line.also))),
        data_points=_points(chart, line, plot),
        data_name=line.name,
    )


def _value(chart: LineChart, line: ChartLine, plot: Plot) -> str:
    mark = {1: f"{UP} ", -1: f"{DOWN} ", 0: ""}[0 if math.isnan(line.last) else plot.y.beyond(line.last)]
    return mark + chart.written(line.last)


def _aside(canvas: Canvas, plot: Plot, name: str, value: str, end: float, place: float) -> list[Markup]:
    """A label beside the plot, tied to the end of its line."""
    x = plot.right
    tie = element("path", d=path([(x + 4, end), (x + 16, place), (x + 24, place)]), class_="tie")
    swatch = ruler(x + 24, place, x + 48, place, "swatch")
    words = [text(name, x + BEFORE, place + 4, "name"), text(value, canvas.width - 4, place + 4, "value end")]
    hit = element("rect", x=x + 18, y=place - 9, width=canvas.width - x - 18, height=LABEL, class_="hit")
    return [hit, tie, swatch, *words]


def _row(plot: Plot, name: str, value: str, y: float) -> list[Markup]:
    """A label in the list below the plot."""
    left = plot.left - 40
    hit = element("rect", x=left, y=y - 14, width=plot.right - left, height=ROW, class_="hit")
    words = [text(name, left + 36, y, "name"), text(value, plot.right, y, "value end")]
    return [hit, ruler(left, y - 4, left + 28, y - 4, "swatch"), *words]


def _points(chart: LineChart, line: ChartLine, plot: Plot) -> str:
    """For the script: pixel across, number across, and the number as it is written."""
    points = [
        [round(plot.x.at(x), 1), round(x, 2), chart.written(y)]
        for x, y in zip(line.x, line.y, strict=True)
        if not math.isnan(x)
    ]
    return visible(json.dumps(points, separators=(",", ":"), ensure_ascii=False))


def _edges(plot: Plot) -> str:
    return " ".join(f"{edge:.0f}" for edge in (plot.left, plot.top, plot.right, plot.bottom))


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places at least `gap` apart, in the order of the wanted ones and between `low` and `high` as long as all fit."""
    order = sorted(range(len(wanted)), key=lambda index: wanted[index])
    places = [0.0] * len(wanted)
    floor = low
    for index in order:
        places[index] = max(wanted[index], floor)
        floor = places[index] + gap
    ceiling = max(high, low + gap * (len(wanted) - 1))
    for index in reversed(order):
        places[index] = min(places[index], ceiling)
        ceiling = places[index] - gap
    return places
