"""Segments as the kernels take them: bounds, positions and angles of all segments, one after the other in memory.

Legend: i query, j key, s segment.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ropewalk.attention.layout.segments import Segment
from ropewalk.attention.rotation.rotate import RotationSpec, is_identity, rotation_at
from ropewalk.methods.frequencies import Table

UNROTATED = -1  # instead of a row of the table


class SegmentTables(NamedTuple):
    """All segments. A row of the rotation tables holds the cosines of all pairs, then their sines."""

    start: Tensor  # [s, i] the keys that each row sees; a row outside the segment sees none
    stop: Tensor
    q_at: Tensor  # [s, i] positions as whole numbers, for biases
    k_at: Tensor  # [s, j]
    q_rotations: Tensor
    q_first: Tensor  # [s] the row of query 0
    k_rotations: Tensor
    k_first: Tensor  # [s] the row of key 0, or UNROTATED
    k_count: Tensor  # [s] how many keys have a row: those that a query sees


def segment_bounds(segments: Sequence[Segment], queries: int) -> tuple[Tensor, Tensor]:
    """start and stop of every query of the sequence in every segment, [s, i]."""
    start, stop = torch.zeros(2, len(segments), queries, dtype=torch.int64)
    for s, segment in enumerate(segments):
        start[s, segment.rows], stop[s, segment.rows] = segment.start, segment.stop
    return start, stop


def segment_tables(segments: Sequence[Segment], queries: int, device: torch.device) -> SegmentTables:
    """Everything about the segments that does not depend on a kernel's tile sizes."""
    start, stop = segment_bounds(segments, queries)
    q_at = torch.zeros_like(start)
    for s, segment in enumerate(segments):
        q_at[s, segment.rows] = segment.q_at.to(torch.int64)
    k_at = torch.stack([segment.k_at.to(torch.int64) for segment in segments])
    # Only differences count, and those of visible keys are small: what 32 bits cut off cancels.
    start, stop, q_at, k_at = (tensor.to(device, torch.int32) for tensor in (start, stop, q_at, k_at))
    return SegmentTables(
        start, stop, q_at, k_at, *_query_rotations(segments, device), *_key_rotations(segments, device)
    )


def rotation_flags(segment: Segment) -> tuple[bool, bool]:
    """Whether it rotates queries, and keys."""
    queries, keys = (not is_identity(at, segment.table) for at in (segment.q_rotated_to, segment.k_rotated_to))
    return queries, keys


def _query_rotations(segments: Sequence[Segment], device: torch.device) -> tuple[Tensor, Tensor]:
    """One table for each segment's rows, one after the other; none if no segment rotates queries."""
    tables, first, count = [], [], 0
    needed = any(rotation_flags(segment)[0] for segment in segments)
    for segment in segments:
        first.append(count - segment.rows.start)
        if needed:
            growth = segment.q_at - segment.q_at.max()
            tables.append(_table(RotationSpec(segment.q_rotated_to, segment.table, growth), device))
            count += len(segment.q_at)
    return torch.cat(tables or [_blank(segments, device)]), torch.tensor(first, dtype=torch.int32, device=device)


def _key_rotations(segments: Sequence[Segment], device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """One table for each different rotation of keys, as far as any segment sees; none for keys that stay."""
    specs: list[tuple[RotationSpec, int]] = []
    indices = []  # of each segment's table among the tables
    for segment in segments:
        spec, count = (
            RotationSpec(segment.k_rotated_to, segment.table, segment.q_at.max() - segment.k_at),
            int(segment.stop.max()),
        )
        index = next((index for index, (other, _) in enumerate(specs) if spec.same(other)), len(specs))
        if spec.is_identity:
            index = UNROTATED
        elif index == len(specs):
            specs.append((spec, count))
        else:
            specs[index] = (spec, max(count, specs[index][1]))
        indices.append(index)
    counts = [count for _, count in specs]
    firsts = [sum(counts[:index]) for index in range(len(specs))]
    tables = [_table(RotationSpec(at[:count], table, growth[:count]), device) for (at, table, growth), count in specs]
    first = torch.tensor([UNROTATED if n == UNROTATED else firsts[n] for n in indices], dtype=torch.int32)
    counted = torch.tensor([0 if n == UNROTATED else counts[n] for n in indices], dtype=torch.int32)
    return torch.cat(tables or [_blank(segments, device)]), first.to(device), counted.to(device)


def _blank(segments: Sequence[Segment], device: torch.device) -> Tensor:
    return torch.zeros(1, 2 * len(segments[0].table.inv_freq), device=device)


def _table(spec: RotationSpec, device: torch.device) -> Tensor:
    """Angles are computed in float64, on the kernel's device, and rounded after sine and cosine."""
    table = Table(*(column.to(device) for column in spec.table))
    rotation = rotation_at(spec.positions.to(device), table, spec.growth.to(device))
    return torch.cat(rotation, -1).float()
