"""Position interpolation: divide all positions by one factor, so that the longest text fits the trained range.

    theta'_i = theta_i / factor

Source: Chen et al. 2023, arXiv:2306.15595, eq. 4; coded as in jquesnelle/yarn, LlamaLinearScaledRotaryEmbedding.py.

It also changes short texts and needs tuning: untuned it is worse than no method within and a little beyond the trained
length (kexue.fm/9675).
"""

from __future__ import annotations

from dataclasses import dataclass

from ropewalk.methods.facts import Facts
from ropewalk.methods.frequencies.frequencies import Frequencies, Table, trained_theta, without_decay
from ropewalk.methods.spec import Factor


@dataclass(frozen=True, kw_only=True)
class Interpolation(Frequencies):
    name = "interpolation"
    factor: Factor

    def table(self, facts: Facts, length: int) -> Table:
        return without_decay(trained_theta(facts) / self.factor)
