"""Resonance: every wavelength becomes a whole number, so that a pair meets the same angles again in each rotation.

    theta'_i = 2 pi / round(2 pi / theta_i),   theta_i of the inner schedule;   0 stays 0

Source: Wang et al. 2024, arXiv:2403.00071; sheryc/resonance_rope,
LlamaYaRNScaledResonanceRotaryEmbedding.py.

All pairs are rounded, after the schedule, as in the authors' code. The paper means the pairs that come round in
training; the others are moved by less than half a token in the trained length. Short texts change too: the fastest pair
of most models by 5 %. The authors train or fine-tune.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

from ropewalk.methods.facts import Facts
from ropewalk.methods.frequencies.frequencies import Frequencies, Table, inner_table


@dataclass(frozen=True, kw_only=True)
class Resonance(Frequencies):
    name = "resonance"
    wraps = True
    inner: Annotated[Frequencies | None, "schedule whose wavelengths are rounded; nothing: the trained one"] = None

    def table(self, facts: Facts, length: int) -> Table:
        table = inner_table(self, facts, length)
        still = table.inv_freq == 0
        wavelength = (2 * math.pi / table.inv_freq.masked_fill(still, 1)).round()
        return table._replace(inv_freq=(2 * math.pi / wavelength).masked_fill(still, 0))
