"""Scalable softmax: logits grow with the logarithm of the number of keys, each head by a factor that it learns.

    scale_h(i) = s_h ln(i + 1),   s_h learned

Source: Nakanishi 2025, "Scalable-Softmax Is Superior for Attention", arXiv:2501.19399, sec. 2 (n^z in place of e^z).

At first s is the reciprocal of the mean of ln n over the trained length, so that a trained model keeps the scale that
it has on average: 0.168 for 1,024 tokens, as in the paper. Here s has no floor and the logarithm no clip.

Not `head_scale` with an unclipped log-n: its learned number would be s ln L, and Adam, whose steps do not depend on the
size of a slope, would move s by 1 / ln L of what the paper's code does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Generator, Tensor

from ropewalk.errors import DoesNotFit
from ropewalk.methods.facts import Facts
from ropewalk.methods.record import POSITIVE
from ropewalk.methods.scales.scale import Scale, Weights


@dataclass(frozen=True, kw_only=True)
class SSMax(Scale):
    name = "ssmax"
    start: Annotated[float | None, POSITIVE, "s of every head before training; nothing: by the trained length"] = None

    def check_against(self, facts: Facts) -> None:
        if self.start is None and facts.trained_len < 2:
            raise DoesNotFit("trained_len", "at least 2 for ssmax, which divides by its logarithms", facts.trained_len)

    def weights(self, facts: Facts, generator: Generator | None = None) -> dict[str, Tensor]:
        logarithms = math.lgamma(facts.trained_len + 1)  # ln 1 + ln 2 + ... + ln L
        start = facts.trained_len / logarithms if self.start is None else self.start
        return {"s": torch.full((facts.heads,), start, dtype=torch.float64)}

    def scale(self, position: Tensor, facts: Facts, weights: Weights) -> Tensor:
        per_head = weights["s"].double().view(-1, *[1] * position.dim())
        return per_head * torch.log(position.double() + 1)
