"""Entropy of attention by position: how many keys a query spreads itself over.

    H_i = - sum_j a_ij ln a_ij        in nats; exp(H) keys share the attention of an even query; a uniform one has
                                      ln(i + 1)

Grown with length it says that attention dissolves (Han et al. 2023, LM-Infinite, arXiv:2308.16137, sec. 3; the reason
for log-n). It need not: attention that has gone to the wrong keys is as sharp as before, so look at the masses as well.
"""

from __future__ import annotations

from torch import Tensor, nn

from ropewalk.evaluation.diagnostics.rows import ROWS, Curves, by_row


def entropy(model: nn.Module, ids_bn: Tensor, *, rows: int = ROWS) -> Curves:
    """Mean over heads and texts, for each layer by the position of the query."""
    return by_row(model, ids_bn, rows, entropy_of)[0]


def entropy_of(weights_bhj: Tensor) -> Tensor:
    """Of one row. 0 ln 0 is 0; where the model's own sink takes a share, the rest is taken as it is."""
    return -(weights_bhj * weights_bhj.clamp(min=1e-300).log()).sum(-1)
