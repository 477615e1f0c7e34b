"""DeepSeek's form of YaRN's temperature: two coefficients, one for the rotated and one for all dimensions.

    g(m)     = 0.1 m ln(factor) + 1
    scale(i) = (g(mscale) / g(mscale_all_dim))^2

Source: DeepSeek-AI 2024 (DeepSeek-V2), arXiv:2405.04434, sec. 3.1.4; transformers' rope type yarn with mscale
and mscale_all_dim.

The released models' own code also multiplies the whole logit by g(mscale_all_dim)^2, which undoes the division there.
A model that does so and has no schedule yet gets it by one more part: +temperature:value=g(mscale_all_dim)^2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

from torch import Tensor

from ropewalk.methods.facts import Facts
from ropewalk.methods.record import NOT_NEGATIVE
from ropewalk.methods.scales.scale import Over, Scale, Weights, constant
from ropewalk.methods.spec import Factor


@dataclass(frozen=True, kw_only=True)
class DeepSeekTemperature(Scale):
    name = "deepseek_temperature"
    of_row = False
    of_frequencies = True
    factor: Factor
    mscale: Annotated[float, NOT_NEGATIVE, "m of the rotated dimensions"] = 1.0
    mscale_all_dim: Annotated[float, NOT_NEGATIVE, "m of all dimensions"] = 0.0
    over: Over = "rotating"

    def scale(self, position: Tensor, facts: Facts, weights: Weights) -> Tensor:
        value = (self._growth(self.mscale) / self._growth(self.mscale_all_dim)) ** 2
        return constant(value, position)

    def _growth(self, coefficient: float) -> float:
        return 0.1 * coefficient * math.log(self.factor) + 1
