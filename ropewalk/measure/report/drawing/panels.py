"""Small plots side by side on common axes, one for each extension: a line, its range, and dots."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from markupsafe import Markup

from ropewalk.measure.report.drawing.axes import Axis, legible, length_ticks, spanning, ticks
from ropewalk.measure.report.drawing.elements import element, path, pixels, ruler, text
from ropewalk.measure.report.drawing.figure import Canvas, drawing
from ropewalk.measure.report.drawing.names import shortened
from ropewalk.measure.report.drawing.plot import Plot, clipped, grid
from ropewalk.measure.report.drawing.styles import style_of

SHADES = 6  # of dots, by their place in the text


class Panel(NamedTuple):
    """A line with its range; NaN where there is none."""

    name: str
    key: int
    x: tuple[float, ...] = ()
    y: tuple[float, ...] = ()
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    dots: tuple[tuple[float, float, float], ...] = ()  # across, up, and a share from light to dark


@dataclass(frozen=True, kw_only=True)
class PanelChart:
    """Panels, row by row."""

    panels: Sequence[Panel]
    columns: int  # on a wide canvas
    across: str = ""
    up: str = ""
    trained_len: int | None = None
    height: float = 110.0


def panel_chart(chart: PanelChart, canvas: Canvas, label: str) -> Markup:
    """The panels on a canvas, on axes that all share; panels of dots have their own."""
    count = min(2 if canvas.narrow else chart.columns, max(1, len(chart.panels)))
    margin = 12.0 if any(panel.dots for panel in chart.panels) else 44.0
    width = (canvas.width - margin - 8 - 16 * (count - 1)) / count
    step = chart.height + 46
    names = shortened([panel.name for panel in chart.panels], int(width / 7.4))
    parts = [text(chart.up, 8, 16, "unit")]
    for n, (panel, name) in enumerate(zip(chart.panels, names, strict=True)):
        left, top = margin + (n % count) * (width + 16), 46 + (n // count) * step
        parts.append(_panel(chart, panel, name, (left, top, width), first=n % count == 0))
    bottom = 30 + step * -(-len(chart.panels) // count)
    return drawing(
        canvas,
        bottom + 12,
        *parts,
        text(chart.across, canvas.width - 8, bottom + 4, "unit end"),
        kind="panels",
        label=label,
    )


def _panel(chart: PanelChart, panel: Panel, name: str, box: tuple[float, float, float], *, first: bool) -> Markup:
    left, top, _ = box
    heading = [element("title", panel.name), text(name, left, top - 8, "name")]
    inside = _dots(panel, box, chart.height) if panel.dots else _curve(chart, panel, box, first=first)
    return element(
        "g", *heading, *inside, class_=f"series {style_of(panel.key)}", data_series=panel.key, data_name=panel.name
    )


def _curve(chart: PanelChart, panel: Panel, box: tuple[float, float, float], *, first: bool) -> list[Markup]:
    left, top, width = box
    bottom = top + chart.height
    x = Axis(0.0, max((value for other in chart.panels for value in other.x), default=1.0) or 1.0, left, left + width)
    every = [value for other in chart.panels for values in (other.y, other.low, other.high) for value in values]
    plot = Plot(x, spanning(every, bottom, top))
    across = legible(length_ticks(x, 4), x, 44)
    up = legible(ticks(plot.y, 4), plot.y, 22)
    back = grid(plot, across, up if first else [tick._replace(label="") for tick in up])
    marks = []
    if chart.trained_len is not None and not x.beyond(chart.trained_len):
        place = x.at(chart.trained_len)
        marks = [ruler(place, top, place, bottom, "dotted")]
    bands = [
        element("path", d=path([*upper, *reversed(lower)], close=True), class_="band strong")
        for upper, lower in _bands(panel, plot)
    ]
    line = [(plot.x.at(a), plot.y.at(b)) for a, b in zip(panel.x, panel.y, strict=True)]
    lines = [element("path", d=path(line), class_="line plain")] if path(line) else []
    return [back, *marks, clipped(plot, *bands, *lines)]


Edge = list[tuple[float, float]]


def _bands(panel: Panel, plot: Plot) -> list[tuple[Edge, Edge]]:
    """The upper and the lower edge of every stretch that has numbers."""
    bands = list[tuple[Edge, Edge]]()
    whole = False
    for x, low, high in zip(panel.x, panel.low, panel.high, strict=True):
        known = not (math.isnan(low) or math.isnan(high))
        if known and not whole:
            bands.append(([], []))
        if known:
            bands[-1][0].append((plot.x.at(x), plot.y.at(high)))
            bands[-1][1].append((plot.x.at(x), plot.y.at(low)))
        whole = known
    return bands


def _dots(panel: Panel, box: tuple[float, float, float], height: float) -> list[Markup]:
    """Dots in their own frame, in shades from the beginning of the text to its end."""
    left, top, width = box
    across = spanning([dot[0] for dot in panel.dots], left, left + width, room=0.04)
    up = spanning([dot[1] for dot in panel.dots], top + height, top, room=0.04)
    shades: dict[int, list[str]] = {}
    for x, y, share in panel.dots:
        if math.isfinite(x) and math.isfinite(y):
            place = f"M{pixels(across.at(x))} {pixels(up.at(y))}h0"
            shades.setdefault(min(int(share * SHADES), SHADES - 1), []).append(place)
    frame = element("rect", x=left, y=top, width=width, height=height, class_="frame")
    drawn = [element("path", d="".join(places), class_=f"dots s{shade}") for shade, places in sorted(shades.items())]
    return [frame, *drawn]
