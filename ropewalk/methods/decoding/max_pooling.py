"""Max pooling: every token has its largest log-probability of all contexts, the context-free guess discounted.

    logp = (1 + beta) max_k log p(T | C_k) - beta log p(T)      where p(T) > 0, the maximum elsewhere

Source: Su 2023, kexue.fm/9617, who names it as another pooling than the mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from torch import Tensor

from ropewalk.methods.decoding.decoding import Combined, Decoding, discount, require_contexts
from ropewalk.methods.record import NOT_NEGATIVE


@dataclass(frozen=True, kw_only=True)
class MaxPooling(Decoding):
    name = "max_pooling"
    beta: Annotated[float, NOT_NEGATIVE, "how strongly the context-free guess is discounted"] = 0.25

    def combine(self, logp: Tensor, last: int | None = None) -> Combined:
        require_contexts(logp)
        return Combined(discount(logp[1:].amax(0), logp[0], self.beta), None)
