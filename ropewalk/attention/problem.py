"""What a way of computing is asked about: one text under one extension, on one device, in one type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from ropewalk.attention.layout.segments import Segment
from ropewalk.extension import Extension


class Problem(NamedTuple):
    """A text's strands, its sizes, whether biases want gradients for what they learned (`learning`), whether all
    spans read the same keys as they came (`fresh`), and the model's cap on its logits."""

    extension: Extension
    strands: Sequence[Segment]
    queries: int
    keys: int
    head_dim: int
    value_dim: int
    dtype: torch.dtype
    device: torch.device
    learning: bool
    fresh: bool = True
    softcap: float | None = None

    @property
    def biases(self) -> str:
        """Their names."""
        return ", ".join(spec.name for spec in self.extension.biases)
