"""KERPLE, logarithmic: each head learns how strongly and how early distance counts; far keys differ little.

    bias_h = -p_h ln(1 + a_h distance),   p_h, a_h > 0 learned

Source: Chi et al. 2022, arXiv:2205.09921, sec. 4.2; chijames/KERPLE, megatron/mpu/layers.py:192-278.

Deviation: the authors write the clamped values back into the parameters at each forward; here the clamp is part of the
function, so its gradient is right and evaluation changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from ropewalk.methods.biases.bias import Bias, Weights, per_head
from ropewalk.methods.facts import Facts

SMALLEST = 0.01


@dataclass(frozen=True, kw_only=True)
class KerpleLog(Bias):
    name = "kerple_log"

    def weights(self, facts: Facts, generator: Generator | None = None) -> dict[str, Tensor]:
        p, a = torch.rand(2, facts.heads, generator=generator, dtype=torch.float64)
        return {"p": 2 * p, "a": a}

    def bias(self, distance: Tensor, query: Tensor, facts: Facts, weights: Weights) -> Tensor:
        p, a = (per_head(weights[name].double().clamp(min=SMALLEST), distance) for name in ("p", "a"))
        return -p * torch.log1p(a * distance)
