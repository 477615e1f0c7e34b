"""A constant: the logits of every row are multiplied by the same number.

    scale(i) = value

Source: the temperature 1/t of Peng et al. 2023, arXiv:2309.00071, eq. 20, as a literal.

Engines that take a literal attention factor put it on cos and sin (over = rotating); there it is the square root of
this value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from torch import Tensor

from ropewalk.methods.facts import Facts
from ropewalk.methods.record import POSITIVE
from ropewalk.methods.scales.scale import Over, Scale, Weights, constant


@dataclass(frozen=True, kw_only=True)
class Temperature(Scale):
    name = "temperature"
    of_row = False
    value: Annotated[float, POSITIVE, "factor of the logits"]
    over: Over = "head"

    def scale(self, position: Tensor, facts: Facts, weights: Weights) -> Tensor:
        return constant(self.value, position)
