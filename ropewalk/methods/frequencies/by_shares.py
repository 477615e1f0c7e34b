"""By shares: every pair is slowed by its own power of the factor, so that one set of powers serves all lengths.

    theta'_i = theta_i / factor^share_i

Source: ours, 2026; LongRoPE's divisors (Ding et al. 2024, arXiv:2402.13753), as powers of the factor.

Share 0 leaves a pair, 1 interpolates it; `dynamic` sets the factor of each row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch

from ropewalk.errors import InvalidValue
from ropewalk.methods.facts import Facts
from ropewalk.methods.frequencies.frequencies import Frequencies, Table, trained_theta, without_decay
from ropewalk.methods.record import NOT_NEGATIVE
from ropewalk.methods.spec import Factor


@dataclass(frozen=True, kw_only=True)
class ByShares(Frequencies):
    name = "by_shares"
    factor: Factor
    shares: Annotated[tuple[float, ...], NOT_NEGATIVE, "power of the factor that slows each pair; 1 interpolates it"]

    def check(self) -> None:
        if not self.shares:
            raise InvalidValue("shares", "one power per pair", self.shares)

    def check_against(self, facts: Facts) -> None:
        facts.require_one_each("shares", "power", self.shares)

    def table(self, facts: Facts, length: int) -> Table:
        self.check_against(facts)
        shares = torch.tensor(self.shares, dtype=torch.float64)
        return without_decay(trained_theta(facts) / self.factor**shares)
