"""From intervals to the few shapes that fused kernels compute without waste.

Each query row sees the keys start <= key < stop. From row to row each bound stays or rises by one, so rows form runs:

    start stays, stop stays         a rectangle
    start stays, stop rises         a rectangle of what all rows see, and a triangle
    start rises, stop rises         a band of one width

"Distance >= w" is such a triangle, shifted: rows w.. against keys 0... Tiles cover the intervals exactly and never
overlap.
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
    """The tiles of the rows' intervals, the largest first; rows that see nothing have none."""
    tiles = [tile for first, end, kind in _runs(start, stop) for tile in _tiles_of_run(first, end, kind, start, stop)]
    return sorted(tiles, key=lambda tile: (-tile.pairs, tile.row))


def _runs(start: Tensor, stop: Tensor) -> list[tuple[int, int, Kind]]:
    """Maximal runs of rows whose bounds change in one manner, and its shape; without rows that see nothing."""
    links = _links(start, stop)
    ends = [*(1 + (links.diff() != 0).nonzero().flatten()).tolist(), len(links)]
    seeing = (stop > start).nonzero().flatten().tolist()
    runs: list[tuple[int, int, Kind]] = []
    row = 0
    while (index := bisect_left(seeing, row)) < len(seeing):
        row = seeing[index]
        link = int(links[row]) if row < len(links) else BROKEN
        end = row + 1 if link == BROKEN else ends[bisect_right(ends, row)] + 1
        runs.append((row, end, KINDS[link % BROKEN]))
        row = end
    return runs


def _links(start: Tensor, stop: Tensor) -> Tensor:
    """How the bounds change from each row to the next: the index of a kind, or BROKEN."""
    by_start, by_stop = start.diff(), stop.diff()
    link = torch.full_like(by_start, BROKEN)
    for index, (rise_start, rise_stop) in enumerate(((0, 0), (0, 1), (1, 1))):
        link[(by_start == rise_start) & (by_stop == rise_stop)] = index
    return link


def _tiles_of_run(first: int, end: int, kind: Kind, start: Tensor, stop: Tensor) -> list[Tile]:
    """A run as tiles: beside a triangle, the keys that all its rows see are a rectangle."""
    rows, low, high = end - first, int(start[first]), int(stop[first])
    if kind == "rectangle" or rows == 1:
        return [Tile("rectangle", first, rows, low, high - low)]
    if kind == "band":
        return [Tile("band", first, rows, low, high - low + rows - 1)]
    visible_to_all = [Tile("rectangle", first, rows, low, high - 1 - low)] if high - 1 > low else []
    return [*visible_to_all, Tile("triangle", first, rows, high - 1, rows)]
