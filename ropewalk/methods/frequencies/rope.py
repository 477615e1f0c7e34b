"""Rotary position embedding: pair i at position m is rotated by m theta_i, so products depend on distances only.

    theta_i = base^(-2i/d),   i = 0 .. d/2-1,   or the model's own schedule

Source: Su et al. 2021, arXiv:2104.09864, eq. 15.
"""

from __future__ import annotations

from dataclasses import dataclass

from ropewalk.methods.facts import Facts
from ropewalk.methods.frequencies.frequencies import Frequencies, Table, trained_theta, without_decay


@dataclass(frozen=True, kw_only=True)
class RoPE(Frequencies):
    name = "rope"

    def table(self, facts: Facts, length: int) -> Table:
        return without_decay(trained_theta(facts))
