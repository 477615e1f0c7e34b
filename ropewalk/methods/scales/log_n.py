"""log-n: attention grows sharper with the number of keys, to keep its entropy near that of training.

    scale(i) = 1 + strength (growth(i) - 1)
    growth(i) = max(1, ln(i+1) / ln L)        clipped
    growth(i) = ln(i+1) / ln L                unclipped, for models trained with it

Source: Su 2021, kexue.fm/8823, and 2023, kexue.fm/9706, eq. 14; bojone/rerope, rerope_patch.py:56 (clipped).
The strength is ours, and 1 as published: with far keys compressed, 1.5 was better (studies/log.md).

Clipped, it changes nothing within the trained length and may be added to any model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from ropewalk.errors import DoesNotFit
from ropewalk.methods.facts import Facts
from ropewalk.methods.record import POSITIVE
from ropewalk.methods.scales.scale import Scale, Weights


@dataclass(frozen=True, kw_only=True)
class LogN(Scale):
    name = "log_n"
    clipped: Annotated[bool, "leave rows within the trained length unchanged"] = True
    strength: Annotated[float, POSITIVE, "1: as published; more: attention grows sharper faster"] = 1.0

    def check_against(self, facts: Facts) -> None:
        if facts.trained_len < 2:
            raise DoesNotFit("trained_len", "at least 2 for log_n, which divides by its logarithm", facts.trained_len)

    def scale(self, position: Tensor, facts: Facts, weights: Weights) -> Tensor:
        growth = torch.log(position.double() + 1) / math.log(facts.trained_len)
        kept = growth.clamp(min=1) if self.clipped else growth
        return (1 + self.strength * (kept - 1)).unsqueeze(0)
