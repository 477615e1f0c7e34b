"""Tokens with several positions, such as those of images: which of them rotates each pair of a layer."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ropewalk.hf.probe.rotation.tables import RotaryCall, positions_of


def axes_of(calls: Sequence[RotaryCall]) -> range:
    """The several positions that rotary modules were called with; empty where a token has one."""
    count = max((len(positions_of(call)) for call in calls if positions_of(call).dim() == 3), default=1)
    return range(count if count > 1 else 0)


def axis_of_pairs(dims: list[int], interleaved: bool | None, q_by_axis: Sequence[Tensor]) -> tuple[int, ...]:
    """The axis of each pair, by the queries with NaN where an axis rotates; a pair that never rotates has the first."""
    reached = torch.stack([torch.isnan(q_bhnd).flatten(0, -2).any(0)[dims] for q_bhnd in q_by_axis])
    firsts = reached[:, ::2] if interleaved else reached[:, : len(dims) // 2]
    return tuple(firsts.int().argmax(0).tolist())
