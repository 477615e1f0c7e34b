"""Sandwich: the product of two sinusoidal position vectors, weaker from head to head.

    bias_h = H / (8h) sum_i (cos(distance / base^(2i/width)) - 1),   h = 1..H,   i = first .. first + width/2 - 1

Source: Chi et al. 2022, arXiv:2212.10356, sec. 5 and the listing of its appendix (first = 0); NVIDIA NeMo,
sandwich_relative_position_embedding.py (first = 1).

The constant -1 per term is NeMo's: it makes the bias 0 at distance 0 and cancels in the softmax.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from ropewalk.methods.biases.bias import Bias, Weights, per_head
from ropewalk.methods.facts import Facts
from ropewalk.methods.record import ABOVE_ONE, EVEN, NOT_NEGATIVE


@dataclass(frozen=True, kw_only=True)
class Sandwich(Bias):
    name = "sandwich"
    width: Annotated[int, EVEN, "size of the sinusoidal vectors"] = 128
    first: Annotated[int, NOT_NEGATIVE, "index of the fastest sinusoid"] = 1
    base: Annotated[float, ABOVE_ONE, "base of the sinusoids' frequencies"] = 10_000.0

    def bias(self, distance: Tensor, query: Tensor, facts: Facts, weights: Weights) -> Tensor:
        i = torch.arange(self.first, self.first + self.width // 2, dtype=torch.float64, device=distance.device)
        product = (torch.cos(distance.unsqueeze(-1) * self.base ** (-2 * i / self.width)) - 1).sum(-1)
        h = torch.arange(1, facts.heads + 1, dtype=torch.float64, device=distance.device)
        return per_head(facts.heads / (8 * h), distance) * product
