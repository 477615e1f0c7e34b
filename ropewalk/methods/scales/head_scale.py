"""Head scale: each head learns one number for its logits; the rest of the model is frozen.

    scale_h(i) = max(floor, lambda_h),   lambda_h learned

Source: Wang et al. 2024, "Length Generalization of Causal Transformers without Position Encoding", arXiv:2404.12224,
sec. 4; AntNLP/nope_head_scale (start 1.6, floor 1, 200 steps, all else frozen).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Generator, Tensor

from ropewalk.methods.facts import Facts
from ropewalk.methods.record import POSITIVE
from ropewalk.methods.scales.scale import Scale, Weights


@dataclass(frozen=True, kw_only=True)
class HeadScale(Scale):
    name = "head_scale"
    of_row = False
    start: Annotated[float, POSITIVE, "number of every head before training"] = 1.6
    floor: Annotated[float, POSITIVE, "smallest value"] = 1.0

    def weights(self, facts: Facts, generator: Generator | None = None) -> dict[str, Tensor]:
        return {"lambda": torch.full((facts.heads,), self.start, dtype=torch.float64)}

    def scale(self, position: Tensor, facts: Facts, weights: Weights) -> Tensor:
        per_head = weights["lambda"].double().clamp(min=self.floor)
        return per_head.view(-1, *[1] * position.dim()).expand(-1, *position.shape)
