"""Adjusted base frequency: train on (or tune) with a larger base, so that every pair is rotated more slowly.

    theta'_i = theta_i * (new_base / base)^(-2i/d)
             = new_base^(-2i/d)    for a model without its own schedule

Source: Xiong et al. 2023 (Llama 2 Long), arXiv:2309.16039, sec. 4.1; Rozière et al. 2023 (Code Llama),
arXiv:2308.12950, uses 1,000,000.

It is meant for continued training; a base below about 0.0424 L^1.628 cannot tell distances apart up to L
(arXiv:2405.14591).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

from ropewalk.errors import DoesNotFit
from ropewalk.methods.facts import Facts
from ropewalk.methods.frequencies.frequencies import Frequencies, Table, formula, trained_theta, without_decay
from ropewalk.methods.record import ABOVE_ONE


@dataclass(frozen=True, kw_only=True)
class ABF(Frequencies):
    name = "abf"
    new_base: Annotated[float, ABOVE_ONE, "the base that replaces the trained one"] = 500_000.0

    def check_against(self, facts: Facts) -> None:
        if self.new_base == facts.base:  # would change nothing
            raise DoesNotFit("new_base", "another than the model's own base", self.new_base)

    def table(self, facts: Facts, length: int) -> Table:
        return without_decay(trained_theta(facts) * (formula(facts, self.new_base) / formula(facts)))

    @property
    def stretch(self) -> float:
        """Unbounded: the training that follows decides the length, not the base."""
        return math.inf
