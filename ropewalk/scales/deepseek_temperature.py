"""DeepSeek's form of YaRN's temperature: two coefficients, one for the rotating and one for all dimensions.

    g(m)     = 0.1 m ln(factor) + 1
    scale(i) = (g(mscale) / g(mscale_all_dim))^2 * g(mscale_all_dim)^2 = g(mscale)^2            whole = true
    scale(i) = (g(mscale) / g(mscale_all_dim))^2                                                whole = false

Source: DeepSeek-V2, arXiv:2405.04434, sec. 3.1.4; its released modeling code puts the quotient on cos and sin and
g(mscale_all_dim)^2 on the softmax scale.

whole = false is what a configuration's attention factor alone says (transformers' rope type yarn with mscale and
mscale_all_dim); there the model's code is expected to supply the rest. The published models have both m equal.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from ropewalk.facts import Facts
from ropewalk.scales.signature import Scale, Weights
from ropewalk.spec import NOT_NEGATIVE, Factor


@dataclass(frozen=True, kw_only=True)
class DeepSeekTemperature(Scale):
    name = "deepseek_temperature"
    factor: Factor
    mscale: Annotated[float, NOT_NEGATIVE, "m of the rotating dimensions"] = 1.0
    mscale_all_dim: Annotated[float, NOT_NEGATIVE, "m of all dimensions"] = 1.0
    whole: Annotated[bool, "with the softmax scale, not the quotient alone"] = True

    def scale(self, position: Tensor, facts: Facts, weights: Weights) -> Tensor:
        quotient = self._growth(self.mscale) / self._growth(self.mscale_all_dim)
        softmax = self._growth(self.mscale_all_dim) if self.whole else 1.0
        return torch.full_like(position, (quotient * softmax) ** 2, dtype=torch.float64).unsqueeze(0)

    def _growth(self, coefficient: float) -> float:
        return 0.1 * coefficient * math.log(self.factor) + 1
