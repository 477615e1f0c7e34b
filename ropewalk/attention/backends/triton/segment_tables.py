"""Strands as the kernels take them: bounds, places and angles of all strands, side by side in memory.

Legend: i query, j key, s strand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ropewalk.attention.layout.segments import Segment
from ropewalk.attention.rotation.rotate import is_identity, rotation_at
from ropewalk.attention.rotation.rotated_copies import RotationSpec
from ropewalk.frequencies import Table

STILL = -1  # in place of a row of the table


class SegmentTables(NamedTuple):
    """All strands. A table's row holds the cosines of all pairs, then their sines."""

    start: Tensor  # [s, i] the keys that each row sees; a row that is not of the strand sees none
    stop: Tensor
    q_at: Tensor  # [s, i] places as whole numbers, for biases
    k_at: Tensor  # [s, j]
    q_turns: Tensor
    q_first: Tensor  # [s] the table's row of query 0
    k_turns: Tensor
    k_first: Tensor  # [s] the table's row of key 0, or STILL
    k_count: Tensor  # [s] how many keys have a row: those that are seen


def bounds(strands: Sequence[Segment], queries: int) -> tuple[Tensor, Tensor]:
    """start and stop of every query of the text in every strand, [s, i]."""
    start, stop = torch.zeros(2, len(strands), queries, dtype=torch.int64)
    for s, strand in enumerate(strands):
        start[s, strand.rows], stop[s, strand.rows] = strand.start, strand.stop
    return start, stop


def segment_tables(strands: Sequence[Segment], queries: int, device: torch.device) -> SegmentTables:
    """Everything about the strands that does not depend on how a kernel is cut up."""
    start, stop = bounds(strands, queries)
    q_at = torch.zeros_like(start)
    for s, strand in enumerate(strands):
        q_at[s, strand.rows] = strand.q_at.to(torch.int64)
    k_at = torch.stack([strand.k_at.to(torch.int64) for strand in strands])
    # Only differences count, and those that are seen are small: whatever 32 bits cut off cancels.
    start, stop, q_at, k_at = (each.to(device, torch.int32) for each in (start, stop, q_at, k_at))
    return SegmentTables(start, stop, q_at, k_at, *_query_turns(strands, device), *_key_turns(strands, device))


def rotates(strand: Segment) -> tuple[bool, bool]:
    """Whether it turns queries, and keys."""
    queries, keys = (not is_identity(places, strand.table) for places in (strand.q_at, strand.k_at))
    return queries, keys


def _query_turns(strands: Sequence[Segment], device: torch.device) -> tuple[Tensor, Tensor]:
    """One table for each strand's rows, one after the other; none if no strand turns queries."""
    tables, first, count = [], [], 0
    needed = any(rotates(strand)[0] for strand in strands)
    for strand in strands:
        first.append(count - strand.rows.start)
        if needed:
            tables.append(_table(RotationSpec(strand.q_at, strand.table, strand.q_at - strand.q_at.max()), device))
            count += len(strand.q_at)
    return torch.cat(tables or [_blank(strands, device)]), torch.tensor(first, dtype=torch.int32, device=device)


def _key_turns(strands: Sequence[Segment], device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """One table for each way that keys are turned, as far as any strand sees; none for keys that stand still."""
    ways: list[tuple[RotationSpec, int]] = []
    places = []  # of each strand's table among the tables
    for strand in strands:
        way, seen = RotationSpec(strand.k_at, strand.table, strand.q_at.max() - strand.k_at), int(strand.stop.max())
        place = next((place for place, (other, _) in enumerate(ways) if way.same(other)), len(ways))
        if is_identity(way.places, way.table):
            place = STILL
        elif place == len(ways):
            ways.append((way, seen))
        else:
            ways[place] = (way, max(seen, ways[place][1]))
        places.append(place)
    counts = [count for _, count in ways]
    firsts = [sum(counts[:place]) for place in range(len(ways))]
    tables = [_table(RotationSpec(way.places[:count], way.table, way.growth[:count]), device) for way, count in ways]
    first = torch.tensor([STILL if place == STILL else firsts[place] for place in places], dtype=torch.int32)
    count = torch.tensor([0 if place == STILL else counts[place] for place in places], dtype=torch.int32)
    return torch.cat(tables or [_blank(strands, device)]), first.to(device), count.to(device)


def _blank(strands: Sequence[Segment], device: torch.device) -> Tensor:
    return torch.zeros(1, 2 * len(strands[0].table.inv_freq), device=device)


def _table(way: RotationSpec, device: torch.device) -> Tensor:
    """Angles are formed in float64, where the kernel runs, and rounded after sine and cosine."""
    table = Table(*(column.to(device) for column in way.table))
    turn = rotation_at(way.places.to(device), table, way.growth.to(device))
    return torch.cat(turn, -1).float()
