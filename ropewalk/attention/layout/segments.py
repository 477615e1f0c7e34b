"""A sequence as segments: for each table and each span the rows, the positions of queries and keys, and the tiles.

A segment is plain attention between rotated queries and rotated keys over a few simple shapes. Everything in which
methods differ is decided here, from positions alone, in time linear in the sequence.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ropewalk.attention.layout.tiles import Tile, tiles_of
from ropewalk.extension import Extension
from ropewalk.facts import Facts
from ropewalk.frequencies import Table


class SpanKeys(NamedTuple):
    """What a span reads: keys, their values and their numbers, and whether the keys are rotated already."""

    k_bgjd: Tensor
    v_bgjd: Tensor
    numbers: Tensor
    rotated: bool = False

    def up_to(self, last: Tensor) -> SpanKeys:
        """The keys that a query numbered `last` could see."""
        count = int(torch.searchsorted(self.numbers, last, right=True))
        return SpanKeys(self.k_bgjd[:, :, :count], self.v_bgjd[:, :, :count], self.numbers[:count], self.rotated)


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

    @property
    def growth(self) -> float:
        """The largest exponent that the real part of theta brings, counted from the furthest query."""
        reach = self.q_at.max() - torch.cat([self.q_at, self.k_at]).min()
        return float((self.table.log_decay.abs() * reach).max()) if len(self.table.log_decay) else 0.0


def segments_of(extension: Extension, facts: Facts, i: Tensor, numbers: Sequence[Tensor]) -> list[Segment]:
    """The segments of queries numbered i over each span's keys with their numbers, all ascending, on the CPU."""
    segments = []
    for rows in stages(extension, facts, i):
        table = extension.theta.table(facts, int(i[rows.start]) + 1)
        for index, (span, j) in enumerate(zip(extension.spans.spans(), numbers, strict=True)):
            start, stop = (torch.searchsorted(j, bound) for bound in span.bounds(i[rows]))
            tiles = [tile._replace(row=tile.row + rows.start) for tile in tiles_of(start, stop)]
            if tiles:
                segments.append(Segment(index, rows, span.q_at(i[rows]), span.k_at(j), table, start, stop, tiles))
    return segments


def stages(extension: Extension, facts: Facts, i: Tensor) -> list[slice]:
    """The rows of each table."""
    if not len(i):
        return []
    starts = torch.tensor(extension.theta.stages(facts, int(i[-1]) + 1))
    stage = torch.searchsorted(starts, i + 1, right=True)
    edges = [0, *(1 + stage.diff().nonzero().flatten()).tolist(), len(i)]
    return [slice(first, end) for first, end in itertools.pairwise(edges)]
