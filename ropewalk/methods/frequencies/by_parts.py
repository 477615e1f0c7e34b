"""NTK by parts: pairs with many rotations in the trained length stay, those with less than one are interpolated.

    theta'_i = keep_i theta_i + (1 - keep_i) theta_i / factor
    turns_i  = L theta_i / 2 pi
    keep_i   = clamp((turns_i - low_turns) / (high_turns - low_turns), 0, 1)                     ramp = turns
    keep_i   = 1 - clamp((i - i_high) / (i_low - i_high), 0, 1)                                  ramp = index
               i_high = max(floor(i(high_turns)), 0), i_low = min(ceil(i(low_turns)), d - 1)
               i(r): the real-valued index at which a pair makes r rotations, interpolated in ln(turns);
               i(r) = d ln(L / 2 pi r) / (2 ln base)    for a model without its own schedule

Source: Peng et al. 2023, arXiv:2309.00071, sec. 3.2; ramp = index as released in jquesnelle/yarn,
LlamaYaRNScaledRotaryEmbedding.py (and in every framework), ramp = turns as printed in the paper.

The ends are bounded as in the released code: by d - 1, although the last index is d/2 - 1. Where all pairs rotate
often, or none does, the ends cross: the released code inverts the ramp there; here pairs up to i_high stay, and all
others are interpolated.

At factor 8 the two ramps differ by up to 2.3 times in the middle pairs. mix = wavelength interpolates 1/theta instead
of theta, as in PoSE's revised YaRN and the starting point of LongRoPE's search.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from torch import Tensor

from ropewalk.errors import InvalidValue
from ropewalk.methods.facts import Facts
from ropewalk.methods.frequencies.frequencies import (
    Frequencies,
    Table,
    moving,
    pair_index,
    trained_theta,
    without_decay,
)
from ropewalk.methods.record import POSITIVE
from ropewalk.methods.spec import Factor


@dataclass(frozen=True, kw_only=True)
class ByParts(Frequencies):
    name = "by_parts"
    factor: Factor
    low_turns: Annotated[float, POSITIVE, "pairs with fewer rotations are interpolated (alpha, beta_slow)"] = 1.0
    high_turns: Annotated[float, POSITIVE, "pairs with more rotations stay (beta, beta_fast, r)"] = 32.0
    ramp: Annotated[Literal["index", "turns"], "between the two, over the pair's index or its rotations"] = "index"
    mix: Annotated[Literal["frequency", "wavelength"], "what is interpolated"] = "frequency"
    truncate: Annotated[bool, "round the ends of the index ramp outwards to whole pairs"] = True

    def check(self) -> None:
        if self.low_turns >= self.high_turns:
            raise InvalidValue("low_turns", f"below high_turns ({self.high_turns:g})", self.low_turns)

    def table(self, facts: Facts, length: int) -> Table:
        theta = trained_theta(facts)
        keep = self._by_index(facts) if self.ramp == "index" else self._by_turns(theta, facts)
        if self.mix == "wavelength":
            return without_decay(theta / (keep + (1 - keep) * self.factor))
        return without_decay(keep * theta + (1 - keep) * theta / self.factor)

    def _by_turns(self, theta: Tensor, facts: Facts) -> Tensor:
        turns = facts.trained_len * theta / (2 * math.pi)
        return ((turns - self.low_turns) / (self.high_turns - self.low_turns)).clamp(0, 1)

    def _by_index(self, facts: Facts) -> Tensor:
        first, last = self._index_of(self.high_turns, facts), self._index_of(self.low_turns, facts)
        if self.truncate:
            first, last = math.floor(first), math.ceil(last)
        first = max(first, 0)
        last = max(min(last, facts.rotating - 1), first)
        last += 0.001 * (first == last)  # as the released code widens an empty ramp
        return 1 - ((pair_index(facts) - first) / (last - first)).clamp(0, 1)

    @staticmethod
    def _index_of(turns: float, facts: Facts) -> float:
        """The (fractional) pair with this many rotations in the trained length."""
        if facts.inv_freq is None:
            return facts.rotating * math.log(facts.trained_len / (2 * math.pi * turns)) / (2 * math.log(facts.base))
        return _crossing(trained_theta(facts), 2 * math.pi * turns / facts.trained_len)


def _crossing(theta: Tensor, value: float) -> float:
    """The (fractional) index at which a falling table takes a value, along straight lines of its logarithm.

    The lines at both ends continue beyond the table. Pairs that are not rotated are left out.
    """
    height = theta[moving(theta)].cummin(0).values.log()
    above = int((height >= math.log(value)).sum())
    left = min(max(above - 1, 0), max(len(height) - 2, 0))
    fall = float(height[left] - height[left + 1]) if len(height) > 1 else 0.0
    return left + (float(height[left]) - math.log(value)) / fall if fall else float(above)
