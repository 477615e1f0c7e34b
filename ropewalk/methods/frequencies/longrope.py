"""LongRoPE: every pair has its own divisor, from a search; one set for short texts and one for long ones.

    theta'_i = theta_i / short_i      for rows within the trained length
    theta'_i = theta_i / long_i       beyond it

Source: Ding et al. 2024, arXiv:2402.13753, sec. 3; microsoft/LongRoPE, rope/longrope.py.

Deviation: the authors' code and transformers switch the whole batch by its longest text; here each row has its own
length, so a cached key never has the wrong set and no row depends on others in the batch. The paper also lets the first
tokens keep their angles; this is left out, as in the released models.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import torch

from ropewalk.errors import InvalidValue
from ropewalk.methods.facts import Facts
from ropewalk.methods.frequencies.frequencies import Frequencies, Table, trained_theta, without_decay
from ropewalk.methods.record import POSITIVE


@dataclass(frozen=True, kw_only=True)
class LongRoPE(Frequencies):
    name = "longrope"
    long: Annotated[tuple[float, ...], POSITIVE, "divisor of each pair in rows beyond the trained length"]
    short: Annotated[tuple[float, ...], POSITIVE, "divisor of each pair in rows within it; empty: 1"] = ()

    def check(self) -> None:
        if not self.long:
            raise InvalidValue("long", "one divisor per pair", self.long)
        if self.short and len(self.short) != len(self.long):
            raise InvalidValue("short", f"as many divisors as long ({len(self.long)})", len(self.short))

    def check_against(self, facts: Facts) -> None:
        facts.require_one_each("long", "divisor", self.long)

    def table(self, facts: Facts, length: int) -> Table:
        self.check_against(facts)
        if length > facts.trained_len:
            return without_decay(trained_theta(facts) / torch.tensor(self.long, dtype=torch.float64))
        if self.short:
            return without_decay(trained_theta(facts) / torch.tensor(self.short, dtype=torch.float64))
        return without_decay(trained_theta(facts))

    def stages(self, facts: Facts, length: int) -> tuple[int, ...]:
        one = length <= facts.trained_len or self.short == self.long
        return (1,) if one else (1, facts.trained_len + 1)

    @property
    def stretch(self) -> float:
        """Unbounded: the divisors were searched for a length, which they do not tell."""
        return math.inf
