"""Randomized positions: train on random ascending numbers from a range longer than any later text.

    training:   n distinct random members of {0, ..., limit-1}, ascending
    inference:  floor(k limit / n),  k = 0 .. n-1, evenly spaced

Source: Ruoss et al. 2023, arXiv:2305.16843, sec. 3 (limit 2,048 for texts of 40 to 500); even spacing: Su 2023,
kexue.fm/9444.

Deviation: the authors draw at evaluation too; even spacing is deterministic and a little better.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Generator, Tensor

from ropewalk.errors import InvalidValue
from ropewalk.methods.positions.positions import Positions, require_length
from ropewalk.methods.record import Rule

UP_TO_A_SAMPLE = Rule("from 1 to 16,777,216", lambda value: 1 <= value <= 2**24)  # a draw permutes the whole range


@dataclass(frozen=True, kw_only=True)
class Randomized(Positions):
    name = "randomized"
    limit: Annotated[int, UP_TO_A_SAMPLE, "numbers come from 0 to limit - 1; above the longest text"]

    def number(self, length: int, generator: Generator | None = None) -> Tensor:
        require_length(length)
        if length > self.limit:
            raise InvalidValue("length", f"at most limit ({self.limit})", length, remedy="raise randomized:limit")
        if generator is None:
            return torch.arange(length) * self.limit // max(length, 1)
        return torch.randperm(self.limit, generator=generator)[:length].sort().values
