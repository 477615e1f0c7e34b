"""From numbers to places on a canvas: axes of three kinds, their ticks, and how numbers are written beside them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

Kind = Literal["even", "log", "signed log"]
EDGE = 1e4  # pixels: where infinity is
KNEE = 0.05  # below it a signed logarithmic axis is even
TAKEN_FOR_0 = 1e-9  # what a logarithmic axis takes for 0
MINUS = "\N{MINUS SIGN}"


class Tick(NamedTuple):
    """A place on an axis and what is written there."""

    value: float
    label: str


@dataclass(frozen=True)
class Axis:
    """Numbers from `low` to `high` lie from pixel `start` to pixel `end`; numbers beyond lie beyond."""

    low: float
    high: float
    start: float
    end: float
    kind: Kind = "even"

    def at(self, value: float) -> float:
        """The pixel of a number; NaN stays NaN."""
        low, high, place = (_warped(number, self.kind) for number in (self.low, self.high, value))
        if math.isnan(place):
            return math.nan
        return min(max(self.start + (place - low) / (high - low) * (self.end - self.start), -EDGE), EDGE)

    def beyond(self, value: float) -> int:
        """1 above the axis, -1 below it, 0 on it."""
        return (value > self.high) - (value < self.low)

    def kept(self, value: float) -> float:
        """The pixel of a number, at an end of the axis where the number is beyond it."""
        return self.at(min(max(value, self.low), self.high))


def _warped(value: float, kind: Kind) -> float:
    if kind == "log":
        return math.log2(value) if value > TAKEN_FOR_0 else math.log2(TAKEN_FOR_0)
    return math.asinh(value / KNEE) if kind == "signed log" else value


def spanning(values: Iterable[float], start: float, end: float, kind: Kind = "even", *, room: float = 0.08) -> Axis:
    """An axis for numbers, with room at both ends; whatever is not finite sets no end."""
    finite = [value for value in values if math.isfinite(value)] or [0.0]
    low, high = min(finite), max(finite)
    if kind == "log":
        low = max(low, TAKEN_FOR_0)
        margin = max(high / low, 1.1) ** room
        return Axis(low / margin, max(high, low) * margin, start, end, kind)
    margin = max(room * (high - low), 1e-4 * max(1.0, abs(high))) if high > low else max(0.05, abs(high) * room)
    return Axis(low - margin, high + margin, start, end, kind)


def ticks(axis: Axis, most: int = 6) -> list[Tick]:
    """Round numbers within an axis."""
    steps = {"even": _even, "log": _doubling, "signed log": _signed}[axis.kind](axis, most)
    digits = _digits(steps)
    return [Tick(value, f"{value + 0.0:,.{digits}f}".replace("-", MINUS)) for value in steps]


def length_ticks(axis: Axis, most: int = 6) -> list[Tick]:
    """Numbers of tokens, in steps that are powers of 2 where texts are long: 1k is 1,024."""
    if axis.kind == "log":
        values = [2.0**power for power in range(int(math.log2(max(1.0, axis.high))) + 1)]
        inside = [value for value in values if not axis.beyond(value)]
        return [Tick(value, short(int(value))) for value in inside[:: -(-len(inside) // most) or 1]]
    step = 2.0 ** math.ceil(math.log2(max(1.0, (axis.high - axis.low) / most)))
    if axis.high < 1024:
        return ticks(axis, most)
    return [Tick(value, short(int(value))) for value in _multiples(step, axis)]


def signed(value: float, digits: int = 2) -> str:
    """A difference with its sign; 0.00 has none."""
    text = f"{value:+.{digits}f}"
    return text.replace("-", MINUS) if float(text) else f"{0:.{digits}f}"


def short(length: int) -> str:
    """A length in few characters."""
    if length and length % 1024**2 == 0:
        return f"{length // 1024**2}m"
    return f"{length // 1024}k" if length and length % 1024 == 0 else f"{length:,}" if length > 9999 else str(length)


def legible(marks: Sequence[Tick], axis: Axis, room: float) -> list[Tick]:
    """Ticks that are at least so many pixels apart; the later of two that are too close is left out."""
    kept = list[Tick]()
    for tick in marks:
        if not kept or abs(axis.at(tick.value) - axis.at(kept[-1].value)) >= room:
            kept.append(tick)
    return kept


def _even(axis: Axis, most: int) -> list[float]:
    raw = (axis.high - axis.low) / most
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(size * power for size in (1, 2, 2.5, 5, 10) if size * power >= raw * (1 - 1e-9))
    return _multiples(step, axis)


def _multiples(step: float, axis: Axis) -> list[float]:
    first, last = math.ceil(axis.low / step - 1e-9), math.floor(axis.high / step + 1e-9)
    return [number * step for number in range(first, last + 1)]


def _doubling(axis: Axis, most: int) -> list[float]:
    if axis.high / axis.low < 4:
        return _even(axis, most)
    powers = range(math.ceil(math.log2(axis.low)), math.floor(math.log2(axis.high)) + 1)
    return [2.0**power for power in powers[:: max(1, -(-len(powers) // most))]]


def _signed(axis: Axis, most: int) -> list[float]:
    sizes = [size * 10.0**power for power in range(-2, 4) for size in (1, 3)]
    values = sorted([0.0, *sizes, *(-size for size in sizes)])
    inside = [Tick(value, "") for value in values if not axis.beyond(value)]
    room = abs(axis.end - axis.start) / most / 1.5
    upper = legible([tick for tick in inside if tick.value >= 0], axis, room)
    lower = legible([tick for tick in reversed(inside) if tick.value <= 0], axis, room)
    values = sorted({tick.value for tick in (*upper, *lower)})
    return values if len(values) > 2 else _even(axis, most)


def _digits(values: Sequence[float]) -> int:
    """As many as the finest of the numbers needs."""
    return next(
        (digits for digits in range(12) if all(abs(round(v, digits) - v) < 1e-9 * max(1, abs(v)) for v in values)), 4
    )
