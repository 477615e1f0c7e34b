"""Mean pooling (parallel windows): the contexts' distributions are averaged, and the context-free guess discounted.

    logp = (1 + beta) mean_k log p(T | C_k) - beta log p(T)

Source: Su 2023, kexue.fm/9617, eq. 4 and 5 (mean pooling); Ratner et al. 2022, arXiv:2212.10947 (parallel windows).

beta = n - 1 for n contexts is naive Bayes to the letter; beta = 0 is the plain average.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from torch import Tensor

from ropewalk.decoding.signature import Combined, Decoding, require_contexts
from ropewalk.record import NOT_NEGATIVE


@dataclass(frozen=True, kw_only=True)
class MeanPooling(Decoding):
    name = "mean_pooling"
    beta: Annotated[float, NOT_NEGATIVE, "how strongly the context-free guess is discounted"] = 0.25

    def combine(self, logp: Tensor, last: int | None = None) -> Combined:
        require_contexts(logp)
        # Token by token, 0 * -inf must stay 0 where nothing is discounted.
        discount = self.beta * logp[0] if self.beta else 0.0
        return Combined((1 + self.beta) * logp[1:].mean(0) - discount, None)
