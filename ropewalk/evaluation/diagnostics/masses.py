"""The share of attention that goes to the nearest keys, and to the first ones of the text.

    last(i)  = sum of a_ij over i - w < j <= i
    first(i) = sum of a_ij over j < n_sink

A model of relative positions that leaves the lengths it knows loses its hold on what is near; and most give their first
tokens, the sinks, whatever they have no use for (Xiao et al. 2023, StreamingLLM, arXiv:2309.17453, fig. 2).
"""

from __future__ import annotations

from torch import Tensor, nn

from ropewalk.errors import InvalidValue
from ropewalk.evaluation.diagnostics.rows import ROWS, Curves, by_row

NEAR, SINKS = 64, 4


def mass_of_last(model: nn.Module, ids_bn: Tensor, *, keys: int = NEAR, rows: int = ROWS) -> Curves:
    """On the last keys, the query's own among them, for each layer by the position of the query."""
    _require_some(keys)
    return by_row(model, ids_bn, rows, lambda heard, row: heard.weights(row)[..., -keys:].sum(-1))


def mass_of_first(model: nn.Module, ids_bn: Tensor, *, keys: int = SINKS, rows: int = ROWS) -> Curves:
    """On the first keys of the text, for each layer by the position of the query."""
    _require_some(keys)
    return by_row(model, ids_bn, rows, lambda heard, row: heard.weights(row)[..., :keys].sum(-1))


def _require_some(keys: int) -> None:
    if keys < 1:
        raise InvalidValue("keys", "at least 1", keys)
