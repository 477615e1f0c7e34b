"""From intervals to the few shapes that fused kernels compute without waste.

Each query row sees the keys start <= key < stop. Both bounds rise in a handful of ways, so the rows fall into runs:

    start stands, stop stands       a rectangle
    start stands, stop rises        a rectangle of what all rows see, and a triangle
    start rises, stop rises         a band of one width

"Distance >= w" is such a triangle in a shifted frame: rows w.. against keys 0... Nothing outside the intervals is
covered, nothing twice.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Literal, NamedTuple

import torch
from torch import Tensor

Kind = Literal["rectangle", "triangle", "band"]
KINDS: tuple[Kind, ...] = ("rectangle", "triangle", "band")
BROKEN = len(KINDS)


class Tile(NamedTuple):
    """`rows` queries from `row` on against `keys` keys from `key` on.

    In a triangle row t sees the first t + 1 keys; in a band the `keys - rows + 1` keys from t on.
    """

    kind: Kind
    row: int
    rows: int
    key: int
    keys: int

    @property
    def pairs(self) -> int:
        """How many query-key pairs it covers."""
        counts = {
            "rectangle": self.rows * self.keys,
            "triangle": self.rows * (self.rows + 1) // 2,
            "band": self.rows * (self.keys - self.rows + 1),
        }
        return counts[self.kind]


def tiles_of(start: Tensor, stop: Tensor) -> list[Tile]:
    """The pieces of the rows' intervals, the largest first; rows that see nothing have none."""
    pieces = [piece for first, end, kind in _runs(start, stop) for piece in _pieces(first, end, kind, start, stop)]
    return sorted(pieces, key=lambda each: (-each.pairs, each.row))


def _runs(start: Tensor, stop: Tensor) -> list[tuple[int, int, Kind]]:
    """Maximal stretches of rows whose bounds go on in one way, with that way; without rows that see nothing."""
    links = _links(start, stop)
    ends = [*(1 + (links.diff() != 0).nonzero().flatten()).tolist(), len(links)]
    seeing = (stop > start).nonzero().flatten().tolist()
    runs: list[tuple[int, int, Kind]] = []
    row = 0
    while (place := bisect_left(seeing, row)) < len(seeing):
        row = seeing[place]
        way = int(links[row]) if row < len(links) else BROKEN
        end = row + 1 if way == BROKEN else ends[bisect_right(ends, row)] + 1
        runs.append((row, end, KINDS[way % BROKEN]))
        row = end
    return runs


def _links(start: Tensor, stop: Tensor) -> Tensor:
    """How the bounds go on from each row to the next: the index of a kind, or BROKEN."""
    by_start, by_stop = start.diff(), stop.diff()
    link = torch.full_like(by_start, BROKEN)
    for index, (rise_start, rise_stop) in enumerate(((0, 0), (0, 1), (1, 1))):
        link[(by_start == rise_start) & (by_stop == rise_stop)] = index
    return link


def _pieces(first: int, end: int, kind: Kind, start: Tensor, stop: Tensor) -> list[Tile]:
    """A run as pieces: a triangle leaves what all its rows see to a rectangle."""
    rows, low, high = end - first, int(start[first]), int(stop[first])
    if kind == "rectangle" or rows == 1:
        return [Tile("rectangle", first, rows, low, high - low)]
    if kind == "band":
        return [Tile("band", first, rows, low, high - low + rows - 1)]
    seen_by_all = [Tile("rectangle", first, rows, low, high - 1 - low)] if high - 1 > low else []
    return [*seen_by_all, Tile("triangle", first, rows, high - 1, rows)]
