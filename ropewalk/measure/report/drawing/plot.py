"""A rectangle with two axes: its grid, its words, and what is clipped to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from ropewalk.measure.report.drawing.axes import Axis, Tick
from ropewalk.measure.report.drawing.elements import element, joined, ruler, text

LETTER = 6.6  # pixels of a letter, on average


class Plot(NamedTuple):
    """An axis across, and one upwards: its pixels fall."""

    x: Axis
    y: Axis

    @property
    def left(self) -> float:
        """The pixel of the left edge."""
        return self.x.start

    @property
    def right(self) -> float:
        """The pixel of the right edge."""
        return self.x.end

    @property
    def top(self) -> float:
        """The pixel of the upper edge."""
        return self.y.end

    @property
    def bottom(self) -> float:
        """The pixel of the lower edge."""
        return self.y.start


def grid(plot: Plot, across: Sequence[Tick], up: Sequence[Tick]) -> Markup:
    """Lines and numbers behind the data."""
    lines = [ruler(plot.left, plot.y.at(tick.value), plot.right, plot.y.at(tick.value), "grid") for tick in up]
    numbers = [text(tick.label, plot.left - 6, plot.y.at(tick.value) + 4, "tick end") for tick in up]
    marks = [
        ruler(plot.x.at(tick.value), plot.bottom, plot.x.at(tick.value), plot.bottom + 4, "grid") for tick in across
    ]
    below = [text(tick.label, plot.x.at(tick.value), plot.bottom + 18, "tick middle") for tick in across]
    frame = ruler(plot.left, plot.bottom, plot.right, plot.bottom, "axis")
    return element("g", *lines, *numbers, *marks, *below, frame, class_="scale", aria_hidden="true")


def clipped(plot: Plot, *inside: str, room: float = 4) -> Markup:
    """Whatever leaves the plot ends at its edge; markers at the edge have some room."""
    left, top = plot.left - room, plot.top - room
    width, height = plot.right - plot.left + 2 * room, plot.bottom - plot.top + 2 * room
    box = f"{left:.1f} {top:.1f} {width:.1f} {height:.1f}"
    return element("svg", *inside, x=left, y=top, width=width, height=height, viewBox=box)


def upright(plot: Plot, value: float, words: str) -> Markup:
    """A dotted line at a number across, with its name on the side where there is room."""
    if plot.x.beyond(value):
        return Markup("")
    x = plot.x.at(value)
    near_right = x + LETTER * len(words) > plot.right
    label = text(words, x + 8 if near_right else x - 8, plot.top - 6, "note end" if near_right else "note")
    return joined([ruler(x, plot.top - 2, x, plot.bottom, "dotted"), label])


def headings(plot: Plot, up: str, across: str) -> Markup:
    """What the axes are: above the plot, and below its right end."""
    words = [text(up, plot.left, plot.top - 26, "unit"), text(across, plot.right, plot.bottom + 36, "unit end")]
    return joined(words)
