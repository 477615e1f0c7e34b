"""T5's bias: one learned number per head and bucket of distances; near distances have their own bucket, far ones share.

    bucket(n) = n                                                              for n < B/2
    bucket(n) = B/2 + int(ln(2n/B) / ln(2 max_distance/B) * B/2), at most B-1  beyond
    bias_h    = table[bucket(distance), h]

Source: Raffel et al. 2019, arXiv:1910.10683, sec. 2.1; its released code's causal form.

T5 does not divide its logits by sqrt(d); in a model that does, the bias is added unchanged.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Generator, Tensor

from ropewalk.errors import InvalidValue
from ropewalk.methods.biases.bias import Bias, Weights
from ropewalk.methods.facts import Facts
from ropewalk.methods.record import AT_LEAST_ONE, EVEN

INITIAL_SPREAD = 0.02
DISTANCE_ATOL = 1e-9


@dataclass(frozen=True, kw_only=True)
class T5(Bias):
    name = "t5"
    buckets: Annotated[int, EVEN, "B: how many numbers a head learns"] = 32
    max_distance: Annotated[int, AT_LEAST_ONE, "distances from here on share the last bucket"] = 128

    def check(self) -> None:
        if self.max_distance <= self.buckets // 2:
            raise InvalidValue("max_distance", f"above half the buckets ({self.buckets // 2})", self.max_distance)

    def weights(self, facts: Facts, generator: Generator | None = None) -> dict[str, Tensor]:
        size = (self.buckets, facts.heads)
        return {"table": torch.randn(size, generator=generator, dtype=torch.float64) * INITIAL_SPREAD}

    def bias(self, distance: Tensor, query: Tensor, facts: Facts, weights: Weights) -> Tensor:
        return weights["table"].double()[self.bucket(distance)].movedim(-1, 0)

    def bucket(self, distance: Tensor) -> Tensor:
        """The bucket of each distance."""
        exact, whole = self.buckets // 2, distance.round()
        # Leaky ReRoPE's thirds: 2.9999999999999996 is 3, however it was computed.
        distance = torch.where((distance - whole).abs() < DISTANCE_ATOL, whole, distance)
        ratio = distance.clamp(min=exact).double() / exact
        coarse = exact + (torch.log(ratio) / math.log(self.max_distance / exact) * exact).long()
        return torch.where(distance < exact, distance.long(), coarse.clamp(max=self.buckets - 1))
