"""Elements of SVG as text. Whatever is not an element already is escaped."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from markupsafe import Markup, escape

from ropewalk.measure.report.drawing.names import visible

Point = tuple[float, float]


def element(tag: str, *inside: str, **attributes: object) -> Markup:
    """`element("text", "a < b", x=1, class_="name")`; attributes that are None are left out."""
    pairs = (
        Markup(' {}="{}"').format(name.rstrip("_").replace("_", "-"), _written(value))
        for name, value in attributes.items()
        if value is not None
    )
    opening = Markup("<") + Markup(tag) + Markup("").join(pairs)
    if not inside:
        return opening + Markup("/>")
    return opening + Markup(">") + joined(inside) + Markup("</") + Markup(tag) + Markup(">")


def joined(parts: Iterable[str]) -> Markup:
    """Elements one after the other, and text between them."""
    return Markup("").join(part if isinstance(part, Markup) else escape(visible(part)) for part in parts)


def text(words: str, x: float, y: float, class_: str = "", **attributes: object) -> Markup:
    """A line of text."""
    return element("text", words, x=x, y=y, class_=class_ or None, **attributes)


def ruler(x1: float, y1: float, x2: float, y2: float, class_: str) -> Markup:
    """A straight line."""
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def path(points: Sequence[Point], *, close: bool = False) -> str:
    """Straight lines through points, with gaps where a number is missing."""
    parts, pen = list[str](), "M"
    for x, y in points:
        if math.isnan(x) or math.isnan(y):
            pen = "M"
            continue
        parts.append(f"{pen}{pixels(x)} {pixels(y)}")
        pen = "L"
    return "".join(parts) + ("Z" if close and parts else "")


def pixels(value: float) -> str:
    """A place on the canvas, to a tenth of a pixel."""
    return f"{value:.1f}".removesuffix(".0")


def _written(value: object) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else visible(str(value))
