"""How lines differ: by colour, dash and marker; the colours are in templates/figure.css, for light and dark."""

from __future__ import annotations

COLOURS, DASHES, MARKERS = 8, 4, 5
SHIFT = 3  # of dashes, from one round of colours to the next
BASE_KEY = -1  # of the base model; other things that are compared with are below it
OTHERS = 32  # keys of what is no extension, and fades on its own, begin here


def style_of(key: int) -> str:
    """The classes of a line: no two of the first 32 have the same colour and dash."""
    if key < 0:
        return "base"
    return f"c{key % COLOURS} d{(key + SHIFT * (key // COLOURS)) % DASHES}"


def marker(key: int, x: float, y: float, size: float = 3.5) -> str:
    """The outline of a marker around a place, as a path."""
    corners = SHAPES[key % MARKERS if key >= 0 else 0]
    return "M" + "L".join(f"{x + size * dx:.1f} {y + size * dy:.1f}" for dx, dy in corners) + "Z"


SHAPES: tuple[tuple[tuple[float, float], ...], ...] = (
    ((1, 0), (0.7, 0.7), (0, 1), (-0.7, 0.7), (-1, 0), (-0.7, -0.7), (0, -1), (0.7, -0.7)),
    ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),
    ((0, -1.2), (1.1, 0.8), (-1.1, 0.8)),
    ((0, -1.3), (1.1, 0), (0, 1.3), (-1.1, 0)),
    ((0, 1.2), (1.1, -0.8), (-1.1, -0.8)),
)
