"""Maps of numbers over positions and layers, one below the other, on one scale with its legend."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from markupsafe import Markup

from ropewalk.measure.report.drawing.axes import Axis, Tick, legible, length_ticks
from ropewalk.measure.report.drawing.elements import element, pixels, ruler, text
from ropewalk.measure.report.drawing.figure import Canvas, drawing, legend_bar
from ropewalk.measure.report.drawing.names import visible
from ropewalk.measure.report.drawing.styles import style_of

SHADES = 12  # between the lowest and the highest number
TALL, LOW = 13.0, 120.0  # pixels of a layer, and of a map at least


class Field(NamedTuple):
    """Numbers of one extension, layer by layer."""

    name: str
    key: int
    at: tuple[float, ...]
    layers: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, kw_only=True)
class FieldMap:
    """Maps, and the words around them."""

    fields: Sequence[Field]
    across: str
    what: str
    trained_len: int
    across_log: bool = False
    digits: int = 2


def field_map(chart: FieldMap, canvas: Canvas, label: str) -> Markup:
    """The maps on a canvas."""
    known = [value for field in chart.fields for row in field.layers for value in row if math.isfinite(value)] or [0.0]
    low, high = min(known), max(known)
    left, right = 44.0, canvas.width - 12.0
    parts = [text(chart.what, 8, 20, "unit")] if not canvas.narrow else []
    parts.append(legend_bar((f"{low:.{chart.digits}f}", f"{high:.{chart.digits}f}"), canvas.width - 190, 20))
    top = 36.0
    for field in chart.fields:
        parts += _field(chart, field, (low, high), (left, right, top + 18))
        top += 18 + _height(field) + 34
    parts.append(text(chart.across, right, top - 2, "unit end"))
    return drawing(canvas, top + 8, *parts, kind="fields", label=label)


def _height(field: Field) -> float:
    return max(LOW if len(field.layers) > 4 else 20.0 * len(field.layers), min(TALL * len(field.layers), 260.0))


def _field(chart: FieldMap, field: Field, ends: tuple[float, float], box: tuple[float, float, float]) -> list[Markup]:
    left, right, top = box
    height = _height(field)
    axis = _across(chart, field, left, right)
    edges = _edges(field.at, axis)
    step = height / len(field.layers)
    shown = legible([*range_of(len(field.layers))], Axis(0, max(1, len(field.layers)), top, top + height), 14)
    numbers = [text(tick.label, left - 6, top + (tick.value + 0.5) * step + 4, "tick end") for tick in shown]
    across = legible(length_ticks(axis, 8 if right > 500 else 5), axis, 40)
    below = [text(tick.label, axis.at(tick.value), top + height + 16, "tick middle") for tick in across]
    trained = [] if axis.beyond(chart.trained_len) else [axis.at(chart.trained_len)]
    marks = [ruler(x, top - 3, x, top + height + 3, "marked") for x in trained]
    values = [[None if math.isnan(value) else round(value, 4) for value in row] for row in field.layers]
    group = element(
        "g",
        element("rect", x=left, y=top, width=right - left, height=height, class_="under"),
        *_shaded(field, edges, ends, top, step),
        *marks,
        class_=f"field series {style_of(field.key)}",
        data_series=field.key,
        data_name=field.name,
        data_box=f"{left:.0f} {top:.0f} {right:.0f} {top + height:.0f}",
        data_edges=json.dumps([round(edge, 1) for edge in edges], separators=(",", ":")),
        data_at=json.dumps([round(x) for x in field.at], separators=(",", ":")),
        data_values=visible(json.dumps(values, separators=(",", ":"))),
    )
    heads = [text(field.name, left, top - 6, "name"), text("", right, top - 6, "value end reading")]
    return [*heads, *numbers, *below, group]


def range_of(layers: int) -> list[Tick]:
    """A tick for every layer."""
    return [Tick(layer, str(layer)) for layer in range(layers)]


def _across(chart: FieldMap, field: Field, left: float, right: float) -> Axis:
    if chart.across_log:
        return Axis(max(1.0, field.at[0]), max(2.0, field.at[-1]), left, right, "log")
    return Axis(0.0, max(1.0, field.at[-1]), left, right)


def _edges(at: Sequence[float], axis: Axis) -> list[float]:
    """Between neighbours, and at both ends of the axis."""
    places = [min(max(axis.at(x), axis.start), axis.end) for x in at]
    between = [(a + b) / 2 for a, b in pairwise(places)]
    return [axis.start, *between, axis.end]


def _shaded(field: Field, edges: Sequence[float], ends: tuple[float, float], top: float, step: float) -> list[Markup]:
    """One path for each shade: thousands of cells are a few elements."""
    low, high = ends
    shades: dict[int, list[str]] = {}
    for layer, row in enumerate(field.layers):
        for place, value in enumerate(row):
            shade = 0 if math.isnan(value) else round(SHADES * (min(max(value, low), high) - low) / ((high - low) or 1))
            if shade:
                x, width = edges[place], edges[place + 1] - edges[place]
                box = f"M{pixels(x)} {pixels(top + layer * step)}h{pixels(width)}v{pixels(step)}h{pixels(-width)}z"
                shades.setdefault(shade, []).append(box)
    return [
        element("path", d="".join(boxes), class_="shade", fill_opacity=round(shade / SHADES, 3))
        for shade, boxes in sorted(shades.items())
    ]
