"""NTK-RoPE in base-beta numerals, corrected: every pair is stretched by the same ratio more than the one before.

    theta'_i = theta_i * factor^(-(i+1) / (d/2))

Source: Su 2023, kexue.fm/9706, "NTK-RoPE-fixed".

The slowest pair is stretched by exactly the factor, and the fastest one by one such ratio.
"""

from __future__ import annotations

from dataclasses import dataclass

from ropewalk.methods.facts import Facts
from ropewalk.methods.frequencies.frequencies import Frequencies, Table, pair_index, trained_theta, without_decay
from ropewalk.methods.spec import Factor


@dataclass(frozen=True, kw_only=True)
class NTKFixed(Frequencies):
    name = "ntk_fixed"
    factor: Factor

    def table(self, facts: Facts, length: int) -> Table:
        share = (pair_index(facts) + 1) / (facts.rotating // 2)
        return without_decay(trained_theta(facts) * self.factor**-share)
