"""The effective distances of a segment as indices in one line, from which a bias of the distance alone is read.

A line of numbers is enough where the distances are evenly spaced: q_at(i) - k_at(j) = origin + step (x_i - y_j).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ropewalk.attention.layout.segments import Segment

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
