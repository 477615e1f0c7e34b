"""From intervals to the few shapes that fused kernels compute without waste.

Each query row sees the keys start <= key < stop. Both bounds rise in a handful of ways, so the rows fall into runs:

    start stands, stop stands       a rectangle
    start stands, stop rises        a rectangle of what all rows see, and a triangle
    start rises, stop rises         a band of one width

"Distance >= w" is such a triangle in a shifted frame: rows w.. against keys 0... Runs that repeat at equal steps (the
chunks of dual chunk attention) become one batched piece. Nothing outside the intervals is covered, nothing twice.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Literal, NamedTuple

import torch
from torch import Tensor

Kind = Literal["rectangle", "triangle", "band"]
KINDS: tuple[Kind, ...] = ("rectangle", "triangle", "band")
BROKEN = len(KINDS)


class Piece(NamedTuple):
    """`blocks` equal blocks of `rows` queries and `keys` keys each, `step` rows and keys apart.

    In a triangle row t sees the first t + 1 keys; in a band the `keys - rows + 1` keys from t on.
    """

    kind: Kind
    row: int
    rows: int
    key: int
    keys: int
    blocks: int = 1
    step: int = 0

    @property
    def pairs(self) -> int:
        """How many query-key pairs it covers."""
        each = {
            "rectangle": self.rows * self.keys,
            "triangle": self.rows * (self.rows + 1) // 2,
            "band": self.rows * (self.keys - self.rows + 1),
        }
        return self.blocks * each[self.kind]


def cover(start: Tensor, stop: Tensor) -> list[Piece]:
    """The pieces of the rows' intervals; rows that see nothing have none."""
    pieces = [piece for first, end, kind in _runs(start, stop) for piece in _pieces(first, end, kind, start, stop)]
    return _batched(pieces)


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


def _pieces(first: int, end: int, kind: Kind, start: Tensor, stop: Tensor) -> list[Piece]:
    """A run as pieces: a triangle leaves what all its rows see to a rectangle."""
    rows, low, high = end - first, int(start[first]), int(stop[first])
    if kind == "rectangle" or rows == 1:
        return [Piece("rectangle", first, rows, low, high - low)]
    if kind == "band":
        return [Piece("band", first, rows, low, high - low + rows - 1)]
    seen_by_all = [Piece("rectangle", first, rows, low, high - 1 - low)] if high - 1 > low else []
    return [*seen_by_all, Piece("triangle", first, rows, high - 1, rows)]


def _batched(pieces: list[Piece]) -> list[Piece]:
    """Equal pieces at equal steps as one."""
    joined: list[Piece] = []
    for piece in sorted(pieces, key=lambda each: (each.kind, each.rows, each.keys, each.row)):
        last = joined[-1] if joined else None
        if last is not None and _follows(last, piece):
            joined[-1] = last._replace(blocks=last.blocks + 1, step=(piece.row - last.row) // last.blocks)
        else:
            joined.append(piece)
    return sorted(joined, key=lambda each: (-each.pairs, each.row))


def _follows(last: Piece, piece: Piece) -> bool:
    same = (last.kind, last.rows, last.keys) == (piece.kind, piece.rows, piece.keys)
    rows, keys = piece.row - last.row, piece.key - last.key
    return same and rows == keys and (last.blocks == 1 or rows == last.step * last.blocks)
