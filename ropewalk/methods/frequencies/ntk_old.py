"""NTK-RoPE in base-beta numerals, first version: multiply the base by the factor itself.

    theta'_i = (base * factor)^(-2i/d) = theta_i * factor^(-2i/d)

Source: Su 2023, kexue.fm/9706, "NTK-RoPE-old".

The slowest pair is stretched by factor^((d-2)/d), a little less than the factor.
"""

from __future__ import annotations

from dataclasses import dataclass

from ropewalk.methods.facts import Facts
from ropewalk.methods.frequencies.frequencies import Frequencies, Table, pair_index, trained_theta, without_decay
from ropewalk.methods.spec import Factor


@dataclass(frozen=True, kw_only=True)
class NTKOld(Frequencies):
    name = "ntk_old"
    factor: Factor

    def table(self, facts: Facts, length: int) -> Table:
        return without_decay(trained_theta(facts) * self.factor ** (-2 * pair_index(facts) / facts.rotating))
