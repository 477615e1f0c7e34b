"""One text as strands: for each table and each span the rows, the places of queries and keys, the pieces to compute.

A strand is plain attention between turned queries and turned keys over a few simple shapes. All that tells methods
apart is settled here, from positions alone, in time linear in the text.
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
    """What a span reads: keys, their values and their numbers; and whether the keys are turned already."""

    k_bgjd: Tensor
    v_bgjd: Tensor
    numbers: Tensor
    turned: bool = False

    def until(self, last: Tensor) -> SpanKeys:
        """Those that a query numbered `last` could see at all."""
        count = int(torch.searchsorted(self.numbers, last, right=True))
        return SpanKeys(self.k_bgjd[:, :, :count], self.v_bgjd[:, :, :count], self.numbers[:count], self.turned)


class Segment(NamedTuple):
    """One span under one table. Places are those of the strand's rows and of all keys of its span."""

    span: int
    rows: slice
    q_at: Tensor
    k_at: Tensor
    table: Table
    start: Tensor  # the keys that each row sees, counted among those of the span
    stop: Tensor
    pieces: list[Tile]  # the same, as shapes

    @property
    def growth(self) -> float:
        """The largest exponent that the real part of theta brings, counted from the furthest query."""
        reach = self.q_at.max() - torch.cat([self.q_at, self.k_at]).min()
        return float((self.table.log_decay.abs() * reach).max()) if len(self.table.log_decay) else 0.0


def segments(extension: Extension, facts: Facts, i: Tensor, numbers: Sequence[Tensor]) -> list[Segment]:
    """The strands of queries numbered i over each span's keys with their numbers, all ascending, on the CPU."""
    found = []
    for rows in stages(extension, facts, i):
        table = extension.theta.table(facts, int(i[rows.start]) + 1)
        for index, (span, j) in enumerate(zip(extension.spans.spans(), numbers, strict=True)):
            start, stop = (torch.searchsorted(j, bound) for bound in span.bounds(i[rows]))
            pieces = [piece._replace(row=piece.row + rows.start) for piece in tiles_of(start, stop)]
            if pieces:
                found.append(Segment(index, rows, span.q_at(i[rows]), span.k_at(j), table, start, stop, pieces))
    return found


def stages(extension: Extension, facts: Facts, i: Tensor) -> list[slice]:
    """The rows that share a table."""
    if not len(i):
        return []
    starts = torch.tensor(extension.theta.stages(facts, int(i[-1]) + 1))
    stage = torch.searchsorted(starts, i + 1, right=True)
    edges = [0, *(1 + stage.diff().nonzero().flatten()).tolist(), len(i)]
    return [slice(first, end) for first, end in itertools.pairwise(edges)]
