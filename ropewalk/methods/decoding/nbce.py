"""NBCE: take each token from the most certain context, and discount the context-free guess.

    H_k   = entropy of p(T | C_k) after the top-p filter, not renormalised;  H_last -= eta
    k     = argmin over the contexts 1..n of H_k
    logp  = (1 + beta) log p(T | C_k) - beta log p(T)     where p(T) survives its own filter, log p(T | C_k) elsewhere

Source: Su 2023, kexue.fm/9617; bojone/NBCE, test.py:73-86.

It suits answers whose parts each rest on one context; it cannot join facts from several.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from ropewalk.errors import InvalidValue
from ropewalk.methods.decoding.decoding import Combined, Decoding, discount, require_contexts
from ropewalk.methods.record import A_SHARE, NOT_NEGATIVE

LEAST_LOGP = -100.0  # below this logarithm a token counts as filtered out


@dataclass(frozen=True, kw_only=True)
class NBCE(Decoding):
    name = "nbce"
    beta: Annotated[float, NOT_NEGATIVE, "how strongly the context-free guess is discounted"] = 0.25
    eta: Annotated[float, NOT_NEGATIVE, "entropy bonus of the previously chosen context"] = 0.1
    top_p: Annotated[float, A_SHARE, "share of probability that the filter keeps"] = 0.95

    def combine(self, logp: Tensor, last: int | None = None) -> Combined:
        require_contexts(logp)
        filtered = keep_top_p(logp, self.top_p)
        entropy = -(filtered.exp() * filtered.clamp(LEAST_LOGP, 0)).sum(-1)
        if last is not None:
            if not 1 <= last < len(logp):
                raise InvalidValue("last", f"a context's row, 1 to {len(logp) - 1}", last)
            entropy[last] -= self.eta
        chosen = int(entropy[1:].argmin()) + 1
        return Combined(discount(filtered[chosen], filtered[0], self.beta, LEAST_LOGP), chosen)


def keep_top_p(logp: Tensor, top_p: float) -> Tensor:
    """Set the least likely tokens of each row, up to 1 - top_p together, to -inf; the likeliest always stays."""
    ascending, order = logp.sort(dim=-1)
    dropped = ascending.exp().cumsum(-1) <= 1 - top_p
    dropped[..., -1] = False
    return logp.masked_fill(dropped.scatter(-1, order, dropped), -torch.inf)
