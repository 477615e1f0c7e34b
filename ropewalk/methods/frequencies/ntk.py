"""NTK-aware scaling: raise the base so that the slowest pair is stretched by the factor and the fastest unchanged.

    theta'_i = base'^(-2i/d),   base' = base * factor^(d/(d-2))
             = theta_i * factor^(-2i/(d-2))

Source: bloc97 2023, "NTK-Aware Scaled RoPE"; derived in Peng et al. 2023, arXiv:2309.00071, sec. 3.1.

The middle pairs are stretched less than the factor, so it reaches only a quarter to half of it (kexue.fm/9948 says
half); use two to four times the factor you need, or by_parts.
"""

from __future__ import annotations

from dataclasses import dataclass

from ropewalk.errors import DoesNotFit
from ropewalk.methods.facts import Facts
from ropewalk.methods.frequencies.frequencies import Frequencies, Table, pair_index, trained_theta, without_decay
from ropewalk.methods.spec import Factor


@dataclass(frozen=True, kw_only=True)
class NTK(Frequencies):
    name = "ntk"
    factor: Factor

    def check_against(self, facts: Facts) -> None:
        if facts.rotating <= 2:
            raise DoesNotFit("rotary_dim", "above 2 for ntk, which divides by d - 2", facts.rotating)

    def table(self, facts: Facts, length: int) -> Table:
        slowing = self.factor ** (-2 * pair_index(facts) / (facts.rotating - 2))
        return without_decay(trained_theta(facts) * slowing)
