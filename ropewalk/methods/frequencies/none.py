"""NoPE: no rotation. A causal model can still count, since every row sees one key more than the row above.

    theta_i = 0

Source: Kazemnejad et al. 2023, arXiv:2305.19466; Haviv et al. 2022, arXiv:2203.16634.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from ropewalk.methods.facts import Facts
from ropewalk.methods.frequencies.frequencies import Frequencies, Table, trained_theta, without_decay


@dataclass(frozen=True, kw_only=True)
class NoPE(Frequencies):
    name = "none"

    def table(self, facts: Facts, length: int) -> Table:
        return without_decay(torch.zeros_like(trained_theta(facts)))

    @property
    def stretch(self) -> float:
        """Unbounded: without angles no distance is new."""
        return math.inf
