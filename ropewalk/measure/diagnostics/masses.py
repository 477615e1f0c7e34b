"""The share of attention on the last keys, and on the first keys of the text.

    last(i)  = sum of a_ij over i - w < j <= i
    first(i) = sum of a_ij over j < n_sink

Beyond the lengths of training, models with relative positions often attend less to near keys. Most models put surplus
attention on their first tokens, the sinks (Xiao et al. 2023, StreamingLLM, arXiv:2309.17453, fig. 2).
"""

from __future__ import annotations

from torch import Tensor, nn

from ropewalk.errors import InvalidValue
from ropewalk.measure.diagnostics.rows import SAMPLED_ROWS, Curves, OfRow, curves_by_row

NEAR_KEYS, SINKS = 64, 4


def mass_of_last(model: nn.Module, ids_bn: Tensor, *, keys: int = NEAR_KEYS, rows: int = SAMPLED_ROWS) -> Curves:
    """On the last keys, including the query's, for every layer by the position of the query."""
    return curves_by_row(model, ids_bn, rows, share_of_last(keys))[0]


def mass_of_first(model: nn.Module, ids_bn: Tensor, *, keys: int = SINKS, rows: int = SAMPLED_ROWS) -> Curves:
    """On the first keys of the text, for every layer by the position of the query."""
    return curves_by_row(model, ids_bn, rows, share_of_first(keys))[0]


def share_of_last(keys: int) -> OfRow:
    """The share of the last keys in one row."""
    _require_some(keys)
    return lambda weights_bhj: weights_bhj[..., -keys:].sum(-1)


def share_of_first(keys: int) -> OfRow:
    """The share of the first keys in one row."""
    _require_some(keys)
    return lambda weights_bhj: weights_bhj[..., :keys].sum(-1)


def _require_some(keys: int) -> None:
    if keys < 1:
        raise InvalidValue("keys", "at least 1", keys)
