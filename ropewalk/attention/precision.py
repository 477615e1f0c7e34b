"""Half precision is for storage: sums, softmax and angles are formed in at least float32."""

from __future__ import annotations

import torch
from torch import Tensor


def wide(dtype: torch.dtype) -> torch.dtype:
    """What numbers of this type are summed up in."""
    return dtype if dtype == torch.float64 else torch.float32


def widened(x: Tensor) -> Tensor:
    """The same numbers in a type to compute with."""
    return x.to(wide(x.dtype))
