"""Far discount: far keys weigh less as there are more of them than in training, so that their share stays.

    bias = -strength ln max(1, (i - w + 1) / (L - w))    for distances above w - 1/2
    bias = 0                                             for others

Source: ours, 2026; for keys that leaky ReRoPE compresses (Su 2023, kexue.fm/9708).

The last row of a training text has L - w keys at distances of at least w, row i has i - w + 1. Under strength 1 a head
whose far logits are all alike gives them together the weight that they had in training; under 0 it is plain attention.
Within the trained length nothing changes. Distances are the effective ones, which may be fractions; the border is half
a step below w, since a leak puts its nearest far key at w or a rounding below. Every key must be visible: all are
counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from ropewalk.errors import DoesNotFit
from ropewalk.methods.biases.bias import Bias, Weights
from ropewalk.methods.facts import Facts
from ropewalk.methods.record import AT_LEAST_ONE, POSITIVE

HALF_STEP = 0.5  # a step of distance


@dataclass(frozen=True, kw_only=True)
class FarDiscount(Bias):
    name = "far_discount"
    of_distance_alone: ClassVar[bool] = False
    window: Annotated[int | None, AT_LEAST_ONE, "w: keys are far above w - 1/2; nothing: 3/8 L"] = None
    strength: Annotated[float, POSITIVE, "1: the far keys' share stays if their logits are alike"] = 0.3

    def check_against(self, facts: Facts) -> None:
        if not 1 <= self._near(facts) < facts.trained_len:
            raise DoesNotFit("window", f"from 1 to below the trained length ({facts.trained_len})", self._near(facts))

    def check_reached(self, furthest: float, whole: bool, facts: Facts) -> None:
        """Every key must be visible, and some of them far."""
        if not whole:
            sentence = "far_discount counts all keys of the text, but the reach hides some of them"
            raise DoesNotFit.because("reach", sentence, remedy="leave far_discount out")
        border = self._near(facts) - HALF_STEP
        if furthest <= border:
            sentence = f"far_discount begins above a distance of {border:g}, but no key is further than {furthest:g}"
            raise DoesNotFit.because("window", sentence, remedy=f"write far_discount:window={int(furthest)}")

    def bias(self, distance: Tensor, query: Tensor, facts: Facts, weights: Weights) -> Tensor:
        near = self._near(facts)
        times = (query.double() - near + 1) / (facts.trained_len - near)
        discount = self.strength * times.clamp(min=1).log()
        return torch.where(self._far(distance, facts), -discount, 0.0).expand(facts.heads, *distance.shape)

    def same_between(self, nearest: Tensor, furthest: Tensor, facts: Facts) -> bool:
        """Where no query sees both near and far keys."""
        return bool((self._far(nearest, facts) | ~self._far(furthest, facts)).all())

    def _far(self, distance: Tensor, facts: Facts) -> Tensor:
        return distance > self._near(facts) - HALF_STEP

    def _near(self, facts: Facts) -> int:
        return 3 * facts.trained_len // 8 if self.window is None else self.window
