"""YaRN's temperature: the longer the target length, the sharper attention becomes.

    scale(i) = (coefficient ln(factor) + 1)^2

Source: Peng et al. 2023, arXiv:2309.00071, eq. 22 (sqrt(1/t) = 0.1 ln s + 1); jquesnelle/yarn multiplies cos and sin by
the root, so that the product counts it twice. The paper's eq. 20 multiplies whole logits (over = head).
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
class YarnTemperature(Scale):
    name = "yarn_temperature"
    of_row = False
    of_frequencies = True
    factor: Factor
    coefficient: Annotated[float, NOT_NEGATIVE, "growth per e-fold of length"] = 0.1
    over: Over = "rotating"

    def scale(self, position: Tensor, facts: Facts, weights: Weights) -> Tensor:
        value = (self.coefficient * math.log(self.factor) + 1) ** 2
        return constant(value, position)
