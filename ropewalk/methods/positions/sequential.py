"""Sequential positions: tokens are numbered as they come.

    0, 1, 2, ..., n-1

Source: Vaswani et al. 2017, arXiv:1706.03762, sec. 3.5.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from ropewalk.methods.positions.positions import Positions, require_length


@dataclass(frozen=True, kw_only=True)
class Sequential(Positions):
    name = "sequential"

    def number(self, length: int, generator: Generator | None = None) -> Tensor:
        require_length(length)
        return torch.arange(length)
