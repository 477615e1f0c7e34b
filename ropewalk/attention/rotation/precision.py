"""Half precision is for storage: sums, softmax and angles are computed in at least float32."""

from __future__ import annotations

import math

import torch
from torch import Tensor

# e^x is written 2^(x LOG2_E) in inner loops: torch's exp is 3 times as slow, and 10 to 30 times where it underflows.
LOG2_E = math.log2(math.e)


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """The type in which numbers of this type are summed."""
    return dtype if dtype == torch.float64 else torch.float32


def to_compute_dtype(x: Tensor) -> Tensor:
    """The same numbers in a type to compute with."""
    return x.to(compute_dtype(x.dtype))
