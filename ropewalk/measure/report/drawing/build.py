"""Charts from measured numbers: what sets a scale, where a line leaves it, and how numbers are written."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import compress, pairwise
from statistics import median_low
from typing import NamedTuple, TypeAlias

from ropewalk.measure.metrics.intervals import Estimate
from ropewalk.measure.report.drawing.charts import KNEE, Axis, Chart, Kind, Panel, Series

TAKEN_FOR_0 = 1e-9  # what a logarithmic axis takes for 0
GIVEN_UP = 3.0  # an interval that is so many times as wide as dots are apart, and as others are, is cut off
PALE = 0.35  # of the colour, for what is off the scale or beaten
MINUS, UP, DOWN = "\N{MINUS SIGN}", "▲", "▼"  # the triangles: beyond the scale

Marks: TypeAlias = Sequence[tuple[float, str]]


def line_chart(
    lines: Sequence[Series],
    *,
    across: str,
    up: str,
    marks: Marks = (),  # numbers across that have a name
    at: Sequence[int] = (),  # lengths that are measured, on a logarithmic axis; else positions from 0
    to: float | None = None,  # the end of an axis of positions
    digits: int = 2,
    signed: bool = False,
    log: Kind | None = None,  # a logarithmic scale upwards, which a reader can choose
    from_zero: bool = False,
    kind: Kind = "even",
    across_log: bool = False,
    tokens: bool = True,  # numbers across are tokens
) -> Chart:
    """Lines with their intervals, the largest last number first. Lines that break end at the edge of the scale."""
    places = [value for line in lines for value in line.x] or [0.0]
    x = axis_across(across, places, to=to, log=across_log, tokens=tokens)
    if at:
        lengths = tuple(map(float, at))
        x = spanning(across, lengths, "log", room=0.04)._replace(at=lengths, tokens=tokens)
    steady = [line for line in lines if not line.broken] or lines
    zero = [0.0] * (from_zero or signed)
    y = spanning(up, [*_numbers(steady), *zero], kind)
    if from_zero:
        y = y._replace(low=0.0)
    placed = [_placed(line, x, y, digits, signed) for line in lines]
    panel = Panel(
        x=x,
        y=y,
        series=tuple(sorted(placed, key=lambda line: -math.inf if math.isnan(line.last) else line.last, reverse=True)),
        log=spanning(up, [*_numbers(lines), *zero], log) if log else None,
        marks=tuple(mark for mark in marks if not x.beyond(mark[0])),
    )
    return Chart(kind="lines", panels=(panel,), height=max(300.0, 20.0 * len(lines)), digits=digits, signed=signed)


def trained_mark(length: int) -> tuple[float, str]:
    """The mark of the trained length."""
    return float(length), "trained length"


def written(value: float, digits: int, *, signed: bool) -> str:
    """A number as people write it."""
    if not math.isfinite(value):
        return "-" if math.isnan(value) else ("∞" if value > 0 else f"{MINUS}∞")
    text = f"{value:+.{digits}f}" if signed else f"{value:.{digits}f}"
    return (text if float(text) else f"{0:.{digits}f}").replace("-", MINUS)


def _numbers(lines: Iterable[Series]) -> list[float]:
    return [value for line in lines for value in line.y]


def axis_across(
    words: str, places: Sequence[float], *, to: float | None = None, log: bool = False, tokens: bool = True
) -> Axis:
    """An axis of positions, from 0 where these are tokens; a logarithmic one has no 0."""
    if log:
        low = max(1.0, min(places))
        high = max(to or max(places), 2 * low)
        powers = range(math.ceil(math.log2(low)), math.floor(math.log2(high)) + 1)
        return Axis(words, low, high, "log", tuple(2.0**power for power in powers), tokens)
    low = 0.0 if tokens else min(places)
    return Axis(words, low, max(to or max(places), low + 1), tokens=tokens, whole=not tokens)


def _placed(line: Series, x: Axis, y: Axis, digits: int, signed: bool) -> Series:
    """A line without the points that the axis across does not have, with its last number and where it is cut off."""
    kept = [n for n, place in enumerate(line.x) if not x.beyond(place)]
    across, up, low, high = (tuple(values[n] for n in kept) if values else () for values in line[2:6])
    line = line._replace(x=across, y=up, low=low, high=high)
    side = 0 if math.isnan(line.last) else y.beyond(line.last)
    value = {1: f"{UP} ", -1: f"{DOWN} ", 0: ""}[side] + written(line.last, digits, signed=signed)
    return line._replace(value=value, cut=_cut(line, x, y))


def _cut(line: Series, x: Axis, y: Axis) -> tuple[float, int] | None:
    """Where the line first crosses an edge of the scale, and which."""
    before: tuple[float, float] | None = None
    for place, value in zip(line.x, line.y, strict=True):
        side, here = y.beyond(value), math.log2(place) if x.kind == "log" else place
        if side:
            edge = y.high if side > 0 else y.low
            crossing = before[0] + (here - before[0]) * (edge - before[1]) / (value - before[1]) if before else here
            return 2**crossing if x.kind == "log" else crossing, side
        before = None if math.isnan(value) else (here, value)
    return None


class IntervalRow(NamedTuple):
    """An extension with its number."""

    name: str
    key: int
    estimate: Estimate
    note: str = ""  # a word or two after the number
    broken: bool = False


def interval_chart(
    rows: Sequence[IntervalRow],
    *,
    across: str,
    zero: str,  # what 0 is
    limit: tuple[float, str] | None = None,  # beyond it a row is broken
    digits: int = 2,
) -> Chart:
    """One row for each extension: a dot with its interval. Rows that break end at the edge of the scale."""
    x = _dots_axis(rows, across)
    marks = [(0.0, zero), *([limit] if limit and not x.beyond(limit[0]) else [])]
    panel = Panel(
        x=x,
        y=Axis("", -0.5, len(rows) - 0.5),
        series=tuple(_row(n, row, x, digits) for n, row in enumerate(rows)),
        marks=tuple(marks),
    )
    return Chart(kind="rows", panels=(panel,), digits=digits, signed=True)


def _row(n: int, row: IntervalRow, x: Axis, digits: int) -> Series:
    value, low, high, _ = row.estimate
    side = 0 if math.isnan(value) else x.beyond(value)
    known = math.isfinite(low) and math.isfinite(high)
    words = {math.inf: "+∞", -math.inf: f"{MINUS}∞"}.get(value, written(value, digits, signed=True))
    interval = f" [{written(low, digits, signed=True)}, {written(high, digits, signed=True)}]" if known else ""
    return Series(
        name=row.name,
        key=row.key,
        x=(value,),
        y=(float(n),),
        low=(x.clamp(low),) if known and not side else (),
        high=(x.clamp(high),) if known and not side else (),
        look="row",
        value="no number" if math.isnan(value) else words + interval,
        note=row.note,
        cut=(float(n), side) if side else None,
    )


def _dots_axis(rows: Sequence[IntervalRow], words: str) -> Axis:
    """The dots of what does not break, and its intervals but those far wider than half of the others, and than the dots
    are apart."""
    steady = [row.estimate for row in rows if not row.broken and math.isfinite(row.estimate.value)]
    dots = [0.0, *(estimate.value for estimate in steady or [row.estimate for row in rows])]
    finite = [value for value in dots if math.isfinite(value)]
    widths = [wide for estimate in steady if math.isfinite(wide := estimate.high - estimate.low)]
    width = max(max(finite) - min(finite), median_low(widths or [0.0]), 0.02)
    low, high = min(finite) - GIVEN_UP * width, max(finite) + GIVEN_UP * width
    ends = [end for estimate in steady for end in (estimate.low, estimate.high) if low <= end <= high]
    return spanning(words, [*finite, *ends], room=0.075)


def scatter(series: Series, x: Axis, y: Axis) -> list[Series]:
    """Dots as they are, and those off the scale at its edge, smaller and pale."""
    off = [bool(x.beyond(a) or y.beyond(b)) for a, b in zip(series.x, series.y, strict=True)]

    def part(wanted: Sequence[bool]) -> Series:
        x, y, sizes = (tuple(compress(values, wanted)) for values in (series.x, series.y, series.sizes))
        return series._replace(look="dots", x=x, y=y, sizes=sizes, words=tuple(compress(series.words, wanted)))

    inside, edge = part([not beyond for beyond in off]), part(off)
    edge = edge._replace(name="", x=tuple(map(x.clamp, edge.x)), y=tuple(map(y.clamp, edge.y)), sizes=(), alpha=PALE)
    return [inside, *([edge] if edge.x else [])]


def map_panel(name: str, key: int, x: Axis, places: Sequence[float], layers: Sequence[Sequence[float]]) -> Panel:
    """The numbers of one extension, layer by layer, with an edge between neighbours."""
    middle = (lambda a, b: math.sqrt(a * b)) if x.kind == "log" else (lambda a, b: (a + b) / 2)
    on = [x.clamp(place) for place in places]
    return Panel(
        x=x,
        y=Axis("layer", -0.5, len(layers) - 0.5, whole=True),
        name=name,
        key=key,
        cells=tuple(map(tuple, layers)),
        places=tuple(places),
        edges=(x.low, *(middle(a, b) for a, b in pairwise(on)), x.high),
    )


def spanning(words: str, values: Iterable[float], kind: Kind = "even", *, room: float = 0.08) -> Axis:
    """An axis for numbers, with room at both ends; whatever is not finite sets no end."""
    finite = [value for value in values if math.isfinite(value)] or [0.0]
    low, high = min(finite), max(finite)
    if kind == "log":
        low = max(low, TAKEN_FOR_0)
        margin = max(high / low, 1.1) ** room
        low, high = low / margin, max(high, low) * margin
    else:
        margin = max(room * (high - low), 1e-4 * max(1.0, abs(high))) if high > low else max(0.05, abs(high) * room)
        low, high = low - margin, high + margin
    return Axis(words, low, high, kind, _round_numbers(low, high, kind))


def _round_numbers(low: float, high: float, kind: Kind) -> tuple[float, ...]:
    """Round numbers on an axis that is not even: libraries put few numbers on a short one, or none."""
    if kind == "even":
        return ()
    digits = (1, 3) if kind == "signed log" else (1, 1.5, 2, 3, 5, 7)
    sizes = [float(f"{digit}e{power}") for power in range(-9, 9) for digit in digits]
    if kind == "signed log":
        wide = [size for size in sizes if size >= KNEE]
        sizes = [*(-size for size in reversed(wide)), 0.0, *wide]
    return tuple(size for size in sizes if low <= size <= high)
