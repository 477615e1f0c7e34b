"""Turning queries and keys: angles in float64, rounded after sine and cosine, each set of places turned once.

Legend: b batch, h head, n token, d head dimension.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ropewalk.frequencies import Table


class Turn(NamedTuple):
    """What vectors are turned by: [tokens, pairs], rounded once."""

    cos: Tensor
    sin: Tensor


def turn_at(places: Tensor, table: Table, growth: Tensor) -> Turn:
    """cos and sin at these places in float64, times exp(growth * log_decay) where theta has a real part."""
    angle = places.double()[:, None] * table.inv_freq
    size = torch.exp(growth.double()[:, None] * table.log_decay)
    return Turn(size * angle.cos(), size * angle.sin())


def turned(x_bhnd: Tensor, turn: Turn, interleaved: bool) -> Tensor:
    """Each pair (a, b) becomes (a cos - b sin, a sin + b cos); dimensions beyond the pairs stay."""
    precision = x_bhnd.dtype if x_bhnd.dtype == torch.float64 else torch.float32
    cos, sin = (part.to(x_bhnd.device, precision) for part in turn)
    pairs = cos.shape[-1]
    rotating, still = x_bhnd[..., : 2 * pairs], x_bhnd[..., 2 * pairs :]
    a, b = (rotating[..., 0::2], rotating[..., 1::2]) if interleaved else (rotating[..., :pairs], rotating[..., pairs:])
    parts = (a * cos - b * sin, a * sin + b * cos)
    joined = torch.stack(parts, -1).flatten(-2) if interleaved else torch.cat(parts, -1)
    joined = joined.to(x_bhnd.dtype)
    return torch.cat([joined, still], -1) if still.shape[-1] else joined


def stands_still(places: Tensor, table: Table) -> bool:
    """Whether turning by these places changes nothing."""
    return not (places.any() and table.inv_freq.any()) and not table.log_decay.any()
