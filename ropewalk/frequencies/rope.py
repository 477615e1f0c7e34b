"""Rotary position embedding: pair i of a query at position m is turned by m theta_i, so products see differences only.

    theta_i = base^(-2i/d),   i = 0 .. d/2-1,   or the table that the model came with

Source: Su et al. 2021, arXiv:2104.09864, eq. 15.
"""

from __future__ import annotations

from dataclasses import dataclass

from ropewalk.facts import Facts
from ropewalk.frequencies.signature import Frequencies, Table, trained, turning


@dataclass(frozen=True, kw_only=True)
class RoPE(Frequencies):
    name = "rope"

    def table(self, facts: Facts, length: int) -> Table:
        return turning(trained(facts))
