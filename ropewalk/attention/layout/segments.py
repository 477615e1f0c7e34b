"""Segments: spans of keys that are computed alike, and their distances."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from ropewalk.extension.extension import Extension
from ropewalk.methods.facts import Facts
from ropewalk.methods.frequencies import Table
from ropewalk.methods.reach import Span

# The effective distances of a segment as indices in one line, from which a bias of the distance alone is read.
#
# A line of numbers is enough where the distances are evenly spaced: q_at(i) - k_at(j) = origin + step (x_i - y_j).


MOST_DISTANCES = 16  # times the number of tokens: positions far apart have more distances than there are tokens
STEP_ATOL = 1e-9


class DistanceLine(NamedTuple):
    """The distance at each index, and the whole numbers whose difference x_i - y_j is the index of a pair.

    Hidden pairs may have an index off the line.
    """

    distance: Tensor
    x_i: Tensor
    y_j: Tensor


def distance_line(segment: Segment) -> DistanceLine | None:
    """The line of a segment, or nothing where its effective distances are not evenly spaced on a short one."""
    steps = _steps(segment.q_at, segment.k_at)
    if steps is None:
        return None
    x_i, y_j, origin, step = steps
    lowest = max(int(x_i.min() - y_j.max()), math.floor(-origin / step))
    highest = max(int(x_i.max() - y_j.min()), lowest + 1)  # a line of one number would be compiled separately
    if highest - lowest > MOST_DISTANCES * (len(x_i) + len(y_j)):
        return None
    distance = origin + step * torch.arange(lowest, highest + 1, dtype=torch.float64)
    return DistanceLine(distance.clamp(min=0), x_i - lowest, y_j)


def _steps(q_at: Tensor, k_at: Tensor) -> tuple[Tensor, Tensor, float, float] | None:
    """Rows and keys as whole steps x and y, the distance where these are equal, and the size of a step."""
    if _whole(q_at) and _whole(k_at):
        return q_at.long(), k_at.long(), 0, 1
    strides = torch.cat([q_at.diff(), k_at.diff()]).double()
    step = float(strides.mean()) if len(strides) else 1.0
    if step <= 0 or ((strides - step).abs() > STEP_ATOL).any():
        return None
    return torch.arange(len(q_at)), torch.arange(len(k_at)), float(q_at[0] - k_at[0]), step


def _whole(positions: Tensor) -> bool:
    return not positions.is_floating_point() or bool((positions == positions.round()).all())


# A sequence as segments: for each table and each span the rows, the positions of queries and keys, and the tiles.
#
# A segment is plain attention between rotated queries and rotated keys over a few simple shapes. Everything in which
# methods differ is decided here, from positions alone, in time linear in the sequence.
#
# Tiles are the few shapes that fused kernels compute without waste. Each query row sees the keys start <= key < stop.
# From row to row each bound stays or rises by one, so rows form runs:
#
#     start stays, stop stays         a rectangle
#     start stays, stop rises         a rectangle of what all rows see, and a triangle
#     start rises, stop rises         a band of one width
#
# "Distance >= w" is such a triangle, shifted: rows w.. against keys 0... Tiles cover the intervals exactly and never
# overlap.


Kind = Literal["rectangle", "triangle", "band"]
KINDS: tuple[Kind, ...] = ("rectangle", "triangle", "band")
BROKEN = len(KINDS)


class SpanKeys(NamedTuple):
    """What a span reads: keys, their values and their numbers, and whether the keys are rotated already."""

    k_bgjd: Tensor
    v_bgjd: Tensor
    numbers: Tensor
    rotated: bool = False
    pair_positions: Tensor | None = None  # where each pair of a key stands, [keys, pairs], if that differs
    last_seen: Tensor | None = None  # the number of the last key that a key's token sees, if that is later

    def until(self, i: Tensor) -> Tensor:
        """The number of the last key that each of the queries sees."""
        return i if self.last_seen is None else torch.maximum(i, self.last_seen[torch.searchsorted(self.numbers, i)])

    def up_to(self, last: Tensor) -> SpanKeys:
        """The keys that a query numbered `last` could see."""
        count = int(torch.searchsorted(self.numbers, last, right=True))
        pairs, seen = (x if x is None else x[:count] for x in (self.pair_positions, self.last_seen))
        keys, values = self.k_bgjd[:, :, :count], self.v_bgjd[:, :, :count]
        return SpanKeys(keys, values, self.numbers[:count], self.rotated, pairs, seen)


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


class Segment(NamedTuple):
    """One span under one table. `q_at` has the segment's rows, `k_at` all keys of its span."""

    span: int
    rows: slice
    q_at: Tensor
    k_at: Tensor
    table: Table
    start: Tensor  # the first key that each row sees, and the one after the last, as indices of the span's keys
    stop: Tensor
    tiles: list[Tile]  # the same pairs, as shapes
    q_at_pairs: Tensor | None = None  # `q_at` and `k_at` of each pair, [rows or keys, pairs], if those differ
    k_at_pairs: Tensor | None = None

    @property
    def q_rotated_to(self) -> Tensor:
        """The positions that queries are rotated to, for all pairs or for each."""
        return self.q_at if self.q_at_pairs is None else self.q_at_pairs

    @property
    def k_rotated_to(self) -> Tensor:
        """The positions that keys are rotated to, for all pairs or for each."""
        return self.k_at if self.k_at_pairs is None else self.k_at_pairs

    @property
    def growth(self) -> float:
        """The largest exponent that the real part of theta brings, counted from the furthest query."""
        reach = self.q_at.max() - torch.cat([self.q_at, self.k_at]).min()
        return float((self.table.log_decay.abs() * reach).max()) if len(self.table.log_decay) else 0.0


def segments_of(
    extension: Extension,
    facts: Facts,
    i: Tensor,
    numbers: Sequence[Tensor],
    pair_positions: Tensor | None = None,
    until: Tensor | None = None,
) -> list[Segment]:
    """The segments of queries numbered i over each span's keys with their numbers, all ascending, on the CPU.

    `pair_positions` has a position for each pair of each key, where those differ: then all spans read the same keys.
    `until` has the number of the last key that each query sees, where that may be later than its own.
    """
    segments, spans = [], extension.reach_or_causal.spans()
    turns = extension.turns(facts) if any(span.pairs for span in spans) else torch.empty(0)
    for rows in stages(extension, facts, i):
        table = extension.frequencies_or_rope.table(facts, int(i[rows.start]) + 1)
        for index, (span, j) in enumerate(zip(spans, numbers, strict=True)):
            bounds = _bounds(span, i[rows], None if until is None else until[rows])
            start, stop = (torch.searchsorted(j, bound) for bound in bounds)
            tiles = [tile._replace(row=tile.row + rows.start) for tile in tiles_of(start, stop)]
            if tiles:
                segment = Segment(index, rows, span.q_at(i[rows]), span.k_at(j), table, start, stop, tiles)
                segments.append(_add_pairs(segment, span, _pair_positions(span, i[rows], j, pair_positions), turns))
    return segments


def _bounds(span: Span, i: Tensor, until: Tensor | None) -> tuple[Tensor, Tensor]:
    """The bounds of a span; the span with a query's own key goes on to the last key that the query sees."""
    start, stop = span.bounds(i)
    return start, stop if until is None else torch.where(stop == i + 1, until + 1, stop)


def _pair_positions(span: Span, i: Tensor, j: Tensor, pair_positions: Tensor | None) -> tuple[Tensor, Tensor] | None:
    """The positions of each pair of queries and keys, [tokens, pairs or 1]; nothing where pairs do not differ."""
    if pair_positions is not None:
        return pair_positions[torch.searchsorted(j, i)], pair_positions
    return None if span.pairs is None else (i[:, None], j[:, None])


def _add_pairs(segment: Segment, span: Span, positions: tuple[Tensor, Tensor] | None, turns: Tensor) -> Segment:
    """The segment with the places of each pair, if pairs differ: by their positions, or by the reach."""
    if positions is None:
        return segment
    q_at, k_at = positions
    if span.pairs is None:
        return segment._replace(q_at_pairs=span.q_at(q_at), k_at_pairs=span.k_at(k_at))
    return segment._replace(q_at_pairs=span.pairs.q_at(q_at, turns), k_at_pairs=span.pairs.k_at(k_at, turns))


def stages(extension: Extension, facts: Facts, i: Tensor) -> list[slice]:
    """The rows of each table."""
    if not len(i):
        return []
    starts = torch.tensor(extension.frequencies_or_rope.stages(facts, int(i[-1]) + 1))
    # A search for each table and not for each row: torch divides a long one among threads, which costs more.
    edges = sorted({0, *torch.searchsorted(i, starts - 1).tolist(), len(i)})
    return [slice(first, end) for first, end in itertools.pairwise(edges)]


# From intervals to tiles.


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
