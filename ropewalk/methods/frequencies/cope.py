"""CoPE, clipped RoPE: pairs too slow to come round in training are slowed until they stand still, or stopped at once.

    theta'_i = w_m theta_i   for the n slowest pairs that rotate, m = 0 .. n-1 from the fastest;   theta_i elsewhere
    w_m      = (1 + cos(pi m / (n-1))) / 2                                              clip = soft
    w_m      = 0                                                                        clip = hard
    n        = the number of pairs with 0 < L theta_i / 2 pi < turns,   or `pairs`

Source: Li et al. 2026, arXiv:2602.05258; hrlics/CoPE, modeling_cope.py (20 pairs of 64, on a Llama 3 of base 10^7).

A pair that stands still carries content alone, at any distance. The authors state a number of pairs, which depends on
the base, the dimensions and the trained length; rotations in the trained length are what it stands for. They are those
of the model's own table, so that a dynamic schedule clips the same pairs in every row. The authors train afterwards.
This is not contextual position encoding (arXiv:2405.18719), which has the same short name.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

from ropewalk.errors import DoesNotFit, InvalidValue
from ropewalk.methods.facts import Facts
from ropewalk.methods.frequencies.frequencies import Frequencies, Table, inner_table, moving, trained_theta
from ropewalk.methods.record import AT_LEAST_ONE, POSITIVE


@dataclass(frozen=True, kw_only=True)
class CoPE(Frequencies):
    name = "cope"
    wraps = True
    clip: Annotated[Literal["soft", "hard"], "slow the pairs gradually, or stop them all"] = "soft"
    turns: Annotated[float | None, POSITIVE, "pairs with fewer rotations in training are clipped; nothing: 1"] = None
    pairs: Annotated[int | None, AT_LEAST_ONE, "how many pairs are clipped, in place of turns"] = None
    inner: Annotated[Frequencies | None, "schedule that is clipped; nothing: the trained one"] = None

    def check(self) -> None:
        if self.turns is not None and self.pairs is not None:
            sentence = f"turns={self.turns:g} and pairs={self.pairs} both say how many pairs are clipped"
            raise InvalidValue.because("pairs", sentence, remedy="state one of them")

    def check_against(self, facts: Facts) -> None:
        super().check_against(facts)
        theta = inner_table(self, facts, 1).inv_freq
        count, rotating = int(self._slow(theta, facts).sum()), int(moving(theta).sum())
        if self.pairs is not None and self.pairs > rotating:
            raise DoesNotFit("pairs", f"at most {rotating}, the pairs that rotate", self.pairs)
        if count < (2 if self.clip == "soft" else 1):  # the first of them stays as it is
            sentence = f"cope ({self.clip}) changes nothing where it clips {count} of {rotating} pairs"
            raise DoesNotFit.because("turns", sentence, remedy="raise turns or pairs")

    def table(self, facts: Facts, length: int) -> Table:
        table = inner_table(self, facts, length)
        return table._replace(inv_freq=table.inv_freq * self._kept(self._slow(table.inv_freq, facts)))

    def _kept(self, slow: Tensor) -> Tensor:
        """The share of its frequency that each pair keeps."""
        if self.clip == "hard":
            return (~slow).double()
        last = max(int(slow.sum()) - 1, 1)
        return torch.where(slow, (1 + torch.cos(math.pi * (slow.cumsum(0) - 1).double() / last)) / 2, 1.0)

    def _slow(self, theta: Tensor, facts: Facts) -> Tensor:
        """The pairs that are clipped; none that the inner schedule does not rotate."""
        usual, rotates = trained_theta(facts), moving(theta)
        if len(theta) != len(usual):
            sentence = f"cope counts the rotations of {len(usual)} pairs, and {self.inner} has {len(theta)}"
            raise DoesNotFit.because("inner", sentence, remedy="write partial around cope, not inside it")
        if self.pairs is not None:
            return rotates & (rotates.flip(0).cumsum(0).flip(0) <= self.pairs)
        return rotates & (facts.trained_len * usual / (2 * math.pi) < (1.0 if self.turns is None else self.turns))
