"""The queries and keys of a text, turned in every way its strands need, and no way twice.

Legend: b batch, h query head, g key head, i query, j key, d head dimension.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ropewalk.attention.flash import Job
from ropewalk.attention.rotation import Turn, stands_still, turn_at, turned
from ropewalk.attention.strands import Strand
from ropewalk.frequencies import Table


class Variants(NamedTuple):
    """Turned copies, and the jobs that say which strand reads which."""

    q: list[Tensor]
    k: list[Tensor]
    jobs: list[Job]


def variants(q_bhid: Tensor, k_bgjd: Tensor, strands: Sequence[Strand], interleaved: bool) -> Variants:
    """One copy of the queries for each span, one of the keys for each set of places and table."""
    q_of_span = {
        span: _turned_queries(q_bhid, [each for each in strands if each.span == span], interleaved)
        for span in sorted({strand.span for strand in strands})
    }
    order = list(q_of_span)
    ways: list[tuple[Tensor, Table, Tensor]] = []
    keys, jobs = [], []
    for strand in strands:
        way = (strand.k_at, strand.table, _origin(strand) - strand.k_at)
        index = next((place for place, other in enumerate(ways) if _same(way, other)), len(ways))
        if index == len(ways):
            ways.append(way)
            keys.append(_turned(k_bgjd, *way, interleaved))
        jobs.append(Job(order.index(strand.span), index, strand.pieces))
    return Variants(list(q_of_span.values()), keys, jobs)


def _turned_queries(q_bhid: Tensor, strands: Sequence[Strand], interleaved: bool) -> Tensor:
    """The queries of one span, each row by its own stage's table; rows of no strand stay."""
    if all(stands_still(strand.q_at, strand.table) for strand in strands):
        return q_bhid
    pairs = len(strands[0].table.inv_freq)
    cos, sin = (torch.full((q_bhid.shape[2], pairs), value, dtype=torch.float64) for value in (1.0, 0.0))
    for strand in strands:
        turn = turn_at(strand.q_at, strand.table, strand.q_at - _origin(strand))
        cos[strand.rows], sin[strand.rows] = turn
    return turned(q_bhid, Turn(cos, sin), interleaved)


def _turned(x_bhnd: Tensor, places: Tensor, table: Table, growth: Tensor, interleaved: bool) -> Tensor:
    return x_bhnd if stands_still(places, table) else turned(x_bhnd, turn_at(places, table, growth), interleaved)


def _origin(strand: Strand) -> Tensor:
    """The place that growth counts from: the furthest query's, so that no key grows."""
    return strand.q_at.max()


def _same(way: tuple[Tensor, Table, Tensor], other: tuple[Tensor, Table, Tensor]) -> bool:
    """Equal places and tables; where there is no decay, growth does not matter."""
    (places, table, growth), (places_, table_, growth_) = way, other
    if not all(torch.equal(one, two) for one, two in ((places, places_), *zip(table, table_, strict=True))):
        return False
    return not table.log_decay.any() or torch.equal(growth, growth_)
