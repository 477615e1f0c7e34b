"""The queries and keys of a text, turned in every way its strands need, and no way twice.

Legend: b batch, h query head, g key head, i query, j key, d head dimension.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ropewalk.attention.layout.segments import Segment, SpanKeys
from ropewalk.attention.layout.tiles import Tile
from ropewalk.attention.rotation.rotate import Rotation, is_identity, rotate, rotation_at
from ropewalk.frequencies import Table


class SegmentInputs(NamedTuple):
    """A strand whose vectors have been turned: which copies and values it reads, and over which pieces."""

    q: int
    k: int
    v: int
    pieces: list[Tile]


class RotatedCopies(NamedTuple):
    """Turned copies, the values, and the jobs that say which strand reads which."""

    q: list[Tensor]
    k: list[Tensor]
    v: list[Tensor]
    jobs: list[SegmentInputs]


class RotationSpec(NamedTuple):
    """How a set of vectors is turned."""

    places: Tensor
    table: Table
    growth: Tensor  # what theta's real part is raised to; of no account where it has none

    def same(self, other: RotationSpec) -> bool:
        """Whether both turn alike."""
        pairs = [(self.places, other.places), *zip(self.table, other.table, strict=True)]
        if self.table.log_decay.any():
            pairs.append((self.growth, other.growth))
        return all(torch.equal(one, two) for one, two in pairs)


class RotatedKeys(NamedTuple):
    """Keys turned one way; no way where they came turned."""

    of: Tensor
    way: RotationSpec | None
    rotated: Tensor


def rotated_copies(
    q_bhid: Tensor, keys: Sequence[SpanKeys], strands: Sequence[Segment], interleaved: bool
) -> RotatedCopies:
    """One copy of the queries for each span, one of the keys for each way of turning them; `keys` are the spans'."""
    made: list[tuple[RotationSpec, Rotation]] = []

    def turn_for(way: RotationSpec) -> Rotation:
        """Sines are dear: each way's are made once, and queries and keys share them."""
        for other, turn in made:
            if way.same(other):
                return turn
        made.append((way, rotation_at(*way)))
        return made[-1][1]

    spans = sorted({strand.span for strand in strands})
    queries = [
        _queries(q_bhid, [each for each in strands if each.span == span], turn_for, interleaved) for span in spans
    ]
    copies: list[RotatedKeys] = []
    values: list[Tensor] = []
    jobs = []
    for strand in strands:
        own = keys[strand.span]
        way = None if own.turned else RotationSpec(strand.k_at, strand.table, _origin(strand) - strand.k_at)
        k = _index([copy.of is own.k_bgjd and _alike(copy.way, way) for copy in copies])
        if k == len(copies):
            turn = None if way is None or _still(way) else turn_for(way)
            copies.append(RotatedKeys(own.k_bgjd, way, rotate(own.k_bgjd, turn, interleaved) if turn else own.k_bgjd))
        v = _index([value is own.v_bgjd for value in values])
        values += [own.v_bgjd] * (v == len(values))
        jobs.append(SegmentInputs(spans.index(strand.span), k, v, strand.pieces))
    return RotatedCopies(queries, [copy.rotated for copy in copies], values, jobs)


def _index(alike: list[bool]) -> int:
    """The first that is, or the place of the next."""
    return alike.index(True) if True in alike else len(alike)


def _alike(one: RotationSpec | None, other: RotationSpec | None) -> bool:
    return one is other if one is None or other is None else one.same(other)


def _queries(
    q_bhid: Tensor, strands: Sequence[Segment], turn_for: Callable[[RotationSpec], Rotation], interleaved: bool
) -> Tensor:
    """The queries of one span, each row by its own stage's table; rows of no strand stay."""
    ways = [RotationSpec(strand.q_at, strand.table, strand.q_at - _origin(strand)) for strand in strands]
    if all(map(_still, ways)):
        return q_bhid
    if len(ways) == 1 and len(ways[0].places) == q_bhid.shape[2]:
        return rotate(q_bhid, turn_for(ways[0]), interleaved)
    size = (q_bhid.shape[2], len(strands[0].table.inv_freq))
    whole = Rotation(torch.ones(size, dtype=torch.float64), torch.zeros(size, dtype=torch.float64))
    for strand, way in zip(strands, ways, strict=True):
        for column, part in zip(whole, turn_for(way), strict=True):
            column[strand.rows] = part
    return rotate(q_bhid, whole, interleaved)


def _still(way: RotationSpec) -> bool:
    return is_identity(way.places, way.table)


def _origin(strand: Segment) -> Tensor:
    """The place that growth counts from: the furthest query's, so that no key grows."""
    return strand.q_at.max()
