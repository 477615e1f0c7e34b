"""Llama 3.1's scaling: slow pairs are interpolated, fast ones kept, with a ramp between them over the rotations.

    turns_i  = L theta_i / 2 pi
    keep_i   = clamp((turns_i - low_turns) / (high_turns - low_turns), 0, 1)
    theta'_i = keep_i theta_i + (1 - keep_i) theta_i / factor

Source: meta-llama/llama-models, models/llama3/model.py, apply_scaling (constants 8, 1 and 4 there).

The formula is that of by_parts with ramp = turns and other thresholds; low_turns = high_turns (Llama 4 Scout) is a
step.
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
from ropewalk.methods.spec import Factor


@dataclass(frozen=True, kw_only=True)
class Llama3(Frequencies):
    name = "llama3"
    factor: Factor = 8.0
    low_turns: Annotated[float, POSITIVE, "pairs with fewer rotations are interpolated (low_freq_factor)"] = 1.0
    high_turns: Annotated[float, POSITIVE, "pairs with more rotations stay (high_freq_factor)"] = 4.0

    def check(self) -> None:
        if self.low_turns > self.high_turns:
            raise InvalidValue("low_turns", f"at most high_turns ({self.high_turns:g})", self.low_turns)

    def table(self, facts: Facts, length: int) -> Table:
        theta = trained_theta(facts)
        turns = facts.trained_len * theta / (2 * math.pi)
        width = self.high_turns - self.low_turns
        smooth = (turns - self.low_turns) / width if width else torch.where(turns > self.low_turns, 1.0, 0.0)
        keep = smooth.clamp(0, 1)
        return without_decay(keep * theta + (1 - keep) * theta / self.factor)
