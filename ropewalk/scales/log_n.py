"""log-n: attention grows sharper with the number of keys, so that its entropy stays that of training.

    scale(i) = max(1, ln(i+1) / ln L)        clipped
    scale(i) = ln(i+1) / ln L                unclipped, for models trained with it

Source: Su 2021, kexue.fm/8823, and 2023, kexue.fm/9706, eq. 14; bojone/rerope, rerope_patch.py:56 (clipped).

Clipped, it changes nothing within the trained length and may be added to any model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from ropewalk.errors import DoesNotFit
from ropewalk.facts import Facts
from ropewalk.scales.signature import Scale, Weights


@dataclass(frozen=True, kw_only=True)
class LogN(Scale):
    name = "log_n"
    clipped: Annotated[bool, "leave rows within the trained length unchanged"] = True

    def check_against(self, facts: Facts) -> None:
        if facts.trained_len < 2:
            raise DoesNotFit("trained_len", "at least 2 for log_n, which divides by its logarithm", facts.trained_len)

    def scale(self, position: Tensor, facts: Facts, weights: Weights) -> Tensor:
        growth = torch.log(position.double() + 1) / math.log(facts.trained_len)
        return (growth.clamp(min=1) if self.clipped else growth).unsqueeze(0)
