"""GAU's rotary bias: two learned vectors, rotated to the query's and the key's position and multiplied.

    bias_h = < R(theta, i) a_h , R(theta, j) b_h >
           = sum_c (a_2c b_2c + a_2c+1 b_2c+1) cos(distance theta_c) + (a_2c b_2c+1 - a_2c+1 b_2c) sin(distance theta_c)

Source: Hua et al. 2022 (GAU), arXiv:2202.10447, listing of rel_pos_bias for n >= 512; kexue.fm/9577, eq. 1.

a = b = (sqrt(l), 0, sqrt(l), 0, ...) is Sandwich. Written out in the distance, it needs no vector per position.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Generator, Tensor

from ropewalk.methods.biases.bias import Bias, Weights
from ropewalk.methods.facts import Facts
from ropewalk.methods.record import ABOVE_ONE, EVEN

INITIAL_SPREAD = 0.02


@dataclass(frozen=True, kw_only=True)
class GAURotary(Bias):
    name = "gau_rotary"
    width: Annotated[int, EVEN, "size of the two vectors"] = 128
    base: Annotated[float, ABOVE_ONE, "base of their rotary frequencies"] = 10_000.0

    def weights(self, facts: Facts, generator: Generator | None = None) -> dict[str, Tensor]:
        a, b = torch.randn(2, facts.heads, self.width, generator=generator, dtype=torch.float64) * INITIAL_SPREAD
        return {"a": a, "b": b}

    def bias(self, distance: Tensor, query: Tensor, facts: Facts, weights: Weights) -> Tensor:
        c = torch.arange(self.width // 2, dtype=torch.float64, device=distance.device)
        theta = self.base ** (-2 * c / self.width)
        angle = distance.unsqueeze(-1) * theta
        a_even, a_odd = weights["a"].double()[:, 0::2], weights["a"].double()[:, 1::2]
        b_even, b_odd = weights["b"].double()[:, 0::2], weights["b"].double()[:, 1::2]
        along = torch.einsum("...c,hc->h...", angle.cos(), a_even * b_even + a_odd * b_odd)
        across = torch.einsum("...c,hc->h...", angle.sin(), a_even * b_odd - a_odd * b_even)
        return along + across
