"""LongRoPE's temperature: how much the bound of the entropy grows from the trained to the target length.

    scale(i) = 1 + ln(factor) / ln L

Source: Ding et al. 2024, arXiv:2402.13753; microsoft/LongRoPE, rope/longrope.py:62-65 (policy "su", the root on cos and
sin), as in Phi-3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from ropewalk.errors import DoesNotFit
from ropewalk.methods.facts import Facts
from ropewalk.methods.scales.scale import Over, Scale, Weights, constant
from ropewalk.methods.spec import Factor


@dataclass(frozen=True, kw_only=True)
class LongRoPETemperature(Scale):
    name = "longrope_temperature"
    of_row = False
    of_frequencies = True
    factor: Factor
    over: Over = "rotating"

    def check_against(self, facts: Facts) -> None:
        if facts.trained_len < 2:
            raise DoesNotFit(
                "trained_len", "at least 2 for longrope_temperature, which divides by ln L", facts.trained_len
            )

    def scale(self, position: Tensor, facts: Facts, weights: Weights) -> Tensor:
        value = 1 + math.log(self.factor) / math.log(facts.trained_len)
        return constant(value, position)
