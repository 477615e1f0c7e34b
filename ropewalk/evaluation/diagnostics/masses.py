"""The share of attention that goes to the nearest keys, and to the first ones of the text.

    last(i)  = sum of a_ij over i - w < j <= i
    first(i) = sum of a_ij over j < n_sink

A model of relative positions that leaves the lengths it knows loses its hold on what is near; and most give their first
tokens, the sinks, whatever they have no use for (Xiao et al. 2023, StreamingLLM, arXiv:2309.17453, fig. 2).
"""

from __future__ import annotations

from torch import Tensor, nn

from ropewalk.errors import InvalidValue
from ropewalk.evaluation.diagnostics.rows import ROWS, Curves, OfRow, by_row

NEAR, SINKS = 64, 4


def mass_of_last(model: nn.Module, ids_bn: Tensor, *, keys: int = NEAR, rows: int = ROWS) -> Curves:
    """On the last keys, the query's own among them, for each layer by the position of the query."""
    return by_row(model, ids_bn, rows, share_of_last(keys))[0]


def mass_of_first(model: nn.Module, ids_bn: Tensor, *, keys: int = SINKS, rows: int = ROWS) -> Curves:
    """On the first keys of the text, for each layer by the position of the query."""
    return by_row(model, ids_bn, rows, share_of_first(keys))[0]


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
