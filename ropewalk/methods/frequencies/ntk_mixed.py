"""NTK-RoPE in a mixed base: the stretching grows with a power of the pair's index, up to the factor at the slowest.

    theta'_i = theta_i * exp(-a (i+1)^p),   a = ln(factor) / (d/2)^p

Source: Su 2023, kexue.fm/9706, "NTK-RoPE-mixed"; coded in bojone/rerope, ntk_patch.py (which takes p = 0.75).

p = 1 is ntk_fixed and p = 0 position interpolation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import torch

from ropewalk.methods.facts import Facts
from ropewalk.methods.frequencies.frequencies import Frequencies, Table, pair_index, trained_theta, without_decay
from ropewalk.methods.record import NOT_NEGATIVE
from ropewalk.methods.spec import Factor


@dataclass(frozen=True, kw_only=True)
class NTKMixed(Frequencies):
    name = "ntk_mixed"
    factor: Factor
    power: Annotated[float, NOT_NEGATIVE, "p: how the stretching is spread over the pairs"] = 0.625

    def table(self, facts: Facts, length: int) -> Table:
        share = ((pair_index(facts) + 1) / (facts.rotating // 2)) ** self.power
        return without_decay(trained_theta(facts) * torch.exp(-math.log(self.factor) * share))
