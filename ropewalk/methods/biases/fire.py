"""FIRE: a small network of the distance, on a logarithmic scale and relative to the query's position.

    psi(x) = ln(|c| x + 1)
    bias_h = MLP_h( psi(distance) / (psi(max(i, |multiplier| threshold)) + 1e-6) ),   MLP: 1 -> width -> H, ReLU

Source: Li et al. 2023, arXiv:2310.04418, sec. 3.2; chuanyang-Zheng/CAPE, DAPE.py, class FIRE.

Deviation: the authors take the largest distance in a row for i, which is the same for whole texts and wrong for a row
that is decoded alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Generator, Tensor

from ropewalk.methods.biases.bias import Bias, Weights, per_head
from ropewalk.methods.facts import Facts
from ropewalk.methods.record import AT_LEAST_ONE, POSITIVE

TINY = 1e-6


@dataclass(frozen=True, kw_only=True)
class FIRE(Bias):
    name = "fire"
    of_distance_alone: ClassVar[bool] = False
    width: Annotated[int, AT_LEAST_ONE, "hidden units of the network"] = 32
    initial_c: Annotated[float, POSITIVE, "c at the start of training"] = 0.1
    threshold: Annotated[float, POSITIVE, "rows shorter than this are normalised by it"] = 512.0

    def weights(self, facts: Facts, generator: Generator | None = None) -> dict[str, Tensor]:
        def uniform(*size: int, fan_in: int) -> Tensor:
            return (2 * torch.rand(size, generator=generator, dtype=torch.float64) - 1) / math.sqrt(fan_in)

        return {
            "c": torch.tensor(self.initial_c, dtype=torch.float64),
            "multiplier": torch.tensor(1.0, dtype=torch.float64),
            "in_weight": uniform(self.width, 1, fan_in=1),
            "in_bias": uniform(self.width, fan_in=1),
            "out_weight": uniform(facts.heads, self.width, fan_in=self.width),
            "out_bias": uniform(facts.heads, fan_in=self.width),
        }

    def bias(self, distance: Tensor, query: Tensor, facts: Facts, weights: Weights) -> Tensor:
        learned = {name: value.double() for name, value in weights.items()}
        furthest = torch.maximum(query.double(), (learned["multiplier"] * self.threshold).abs())
        rate = learned["c"].abs()
        share = torch.log(rate * distance + 1) / (torch.log(rate * furthest + 1) + TINY)
        hidden = torch.relu(share.unsqueeze(-1) * learned["in_weight"][:, 0] + learned["in_bias"])
        return torch.einsum("...w,hw->h...", hidden, learned["out_weight"]) + per_head(learned["out_bias"], distance)
