"""Llama 4's temperature: attention grows sharper with every trained length that a row lies behind.

    scale(i) = 1 + beta ln(1 + floor((i + first) / length))

Source: Meta 2025, Llama 4; meta-llama/llama-models, models/llama4/model.py (length 8,192, first 1, in layers without
rotation); transformers, models/ministral3/modeling_ministral3.py (length 16,384, first 0, in all layers).

With first = 0 nothing changes within the length. Models that come with it compute it themselves: there it is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

from ropewalk.methods.facts import Facts
from ropewalk.methods.record import AT_LEAST_ONE, NOT_NEGATIVE
from ropewalk.methods.scales.scale import Scale, Weights


@dataclass(frozen=True, kw_only=True)
class Llama4Temperature(Scale):
    name = "llama4_temperature"
    beta: Annotated[float, NOT_NEGATIVE, "growth with the logarithm of the row's length"] = 0.1
    length: Annotated[int | None, AT_LEAST_ONE, "tokens of a step; nothing: the trained length"] = None
    first: Annotated[Literal[0, 1], "number of the first row: 0 as in Ministral 3, 1 as in Llama 4"] = 0

    def scale(self, position: Tensor, facts: Facts, weights: Weights) -> Tensor:
        steps = (position + self.first) // (self.length or facts.trained_len)
        return (1 + self.beta * torch.log1p(steps.double())).unsqueeze(0)
