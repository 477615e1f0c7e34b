"""BAM: a generalized Gaussian of the distance, whose scale, shape and centre each head learns.

    bias_h = -e^s_h (|distance + e^m_h - e^-m_h| + 1e-5)^p_h,   s_h, p_h (and m_h) learned, 0 at first

Source: Bianchessi et al. 2025, arXiv:2505.22842, sec. 2.3; ArthurSBianchessi/BAM, models/bam_ssmax.py (theta_alpha,
theta_beta and theta_mu).

p = 1 is ALiBi, p = 0 no bias at all; below 0 near keys count least, and a head looks far back. The authors leave m at 0
unless it is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Generator, Tensor

from ropewalk.methods.biases.bias import Bias, Weights, per_head
from ropewalk.methods.facts import Facts

LEAST_DISTANCE = 1e-5  # 0 has no negative power


@dataclass(frozen=True, kw_only=True)
class BAM(Bias):
    name = "bam"
    centred: Annotated[bool, "whether m stays at 0, so that the bias is centred on the query"] = True

    def weights(self, facts: Facts, generator: Generator | None = None) -> dict[str, Tensor]:
        learned = ("s", "p") if self.centred else ("s", "p", "m")
        return {name: torch.zeros(facts.heads, dtype=torch.float64) for name in learned}

    def bias(self, distance: Tensor, query: Tensor, facts: Facts, weights: Weights) -> Tensor:
        s, p = (per_head(weights[name].double(), distance) for name in ("s", "p"))
        away = distance.double()[None]
        if not self.centred:
            away = away + 2 * per_head(weights["m"].double(), distance).sinh()
        return -s.exp() * (away.abs() + LEAST_DISTANCE) ** p
