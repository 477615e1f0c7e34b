"""Entropy of attention by position: over how many keys a query spreads its attention.

    H_i = - sum_j a_ij ln a_ij        in nats; n keys with equal shares have ln(n), uniform attention has ln(i + 1)

If it grows with length, attention is diluted (Han et al. 2023, LM-Infinite, arXiv:2308.16137, sec. 3; the reason for
log-n). Attention on the wrong keys can be as sharp as before, so look at the attention on near keys as well.
"""

from __future__ import annotations

from torch import Tensor, nn

from ropewalk.measure.diagnostics.rows import SAMPLED_ROWS, Curves, curves_by_row


def entropy(model: nn.Module, ids_bn: Tensor, *, rows: int = SAMPLED_ROWS) -> Curves:
    """Mean over heads and texts, for every layer by the position of the query."""
    return curves_by_row(model, ids_bn, rows, entropy_of)[0]


def entropy_of(weights_bhj: Tensor) -> Tensor:
    """Of one row. 0 ln 0 is 0; the share of a learned sink is left out, the others are not rescaled."""
    return -(weights_bhj * weights_bhj.clamp(min=1e-300).log()).sum(-1)
