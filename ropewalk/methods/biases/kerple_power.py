"""KERPLE, power: each head learns how strongly distance counts and with which power it grows.

    bias_h = -a_h distance^p_h,   a_h > 0 and 0 < p_h <= 2 learned

Source: Chi et al. 2022, arXiv:2205.09921, sec. 4.2; chijames/KERPLE, megatron/mpu/layers.py:281-439 (kerple_power_ap_).

Deviation: the clamp is part of the function, as in kerple_log. ALiBi is the case p = 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from ropewalk.methods.biases.bias import Bias, Weights, per_head
from ropewalk.methods.facts import Facts

SMALLEST, LARGEST_POWER = 0.01, 2.0


@dataclass(frozen=True, kw_only=True)
class KerplePower(Bias):
    name = "kerple_power"

    def weights(self, facts: Facts, generator: Generator | None = None) -> dict[str, Tensor]:
        p, a = torch.rand(2, facts.heads, generator=generator, dtype=torch.float64)
        return {"p": LARGEST_POWER * p, "a": a}

    def bias(self, distance: Tensor, query: Tensor, facts: Facts, weights: Weights) -> Tensor:
        a = per_head(weights["a"].double().clamp(min=SMALLEST), distance)
        p = per_head(weights["p"].double().clamp(min=SMALLEST, max=LARGEST_POWER), distance)
        return -a * distance.double() ** p
