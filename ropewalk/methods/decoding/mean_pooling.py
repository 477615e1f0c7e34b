"""Mean pooling (parallel windows): contexts' log-probabilities are averaged, the context-free guess discounted.

    logp = (1 + beta) mean_k log p(T | C_k) - beta log p(T)     where p(T) > 0, the mean elsewhere

Source: Su 2023, kexue.fm/9617, eq. 4 and 5, who reads parallel windows (Ratner et al. 2022, arXiv:2212.10947) this way.

beta = n - 1 for n contexts is exact naive Bayes; beta = 0 is the plain average.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from torch import Tensor

from ropewalk.methods.decoding.decoding import Combined, Decoding, discount, require_contexts
from ropewalk.methods.record import NOT_NEGATIVE


@dataclass(frozen=True, kw_only=True)
class MeanPooling(Decoding):
    name = "mean_pooling"
    beta: Annotated[float, NOT_NEGATIVE, "how strongly the context-free guess is discounted"] = 0.25

    def combine(self, logp: Tensor, last: int | None = None) -> Combined:
        require_contexts(logp)
        return Combined(discount(logp[1:].mean(0), logp[0], self.beta), None)
