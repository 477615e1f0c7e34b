"""What attention weights look like at a length: entropy, masses, sinks, decay and growth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ropewalk.equation import reference_logits
from ropewalk.errors import InvalidValue
from ropewalk.extension.extension import Extension
from ropewalk.extension.inputs import Tokens
from ropewalk.hf.attach.attention import CapturedLayer, capture_layers
from ropewalk.hf.attach.handle import host_of
from ropewalk.hf.attach.trained_extension import TrainedExtension
from ropewalk.hf.probe.host import device_of
from ropewalk.measure.diagnostics.pass_states import (
    SAMPLED_ROWS,
    Curves,
    OfRow,
    curves_by_row,
    distance_bins,
    middles,
    some_rows,
)
from ropewalk.measure.metrics.losses import token_losses
from ropewalk.methods.facts import Facts
from ropewalk.methods.reach import Sinks, Window

# Entropy of attention by position: over how many keys a query spreads its attention.
#
#     H_i = - sum_j a_ij ln a_ij        in nats; n keys with equal shares have ln(n), uniform attention has ln(i + 1)
#
# If it grows with length, attention is diluted (Han et al. 2023, LM-Infinite, arXiv:2308.16137, sec. 3; the reason for
# log-n). Attention on the wrong keys can be as sharp as before, so look at the attention on near keys as well.


def entropy(model: nn.Module, ids_bn: Tensor, *, rows: int = SAMPLED_ROWS) -> Curves:
    """Mean over heads and texts, for every layer by the position of the query."""
    return curves_by_row(model, ids_bn, rows, entropy_of)[0]


def entropy_of(weights_bhj: Tensor) -> Tensor:
    """Of one row. 0 ln 0 is 0; the share of a learned sink is left out, the others are not rescaled."""
    return -(weights_bhj * weights_bhj.clamp(min=1e-300).log()).sum(-1)


# The share of attention on the last keys, and on the first keys of the text.
#
#     last(i)  = sum of a_ij over i - w < j <= i
#     first(i) = sum of a_ij over j < n_sink
#
# Beyond the lengths of training, models with relative positions often attend less to near keys. Most models put surplus
# attention on their first tokens, the sinks (Xiao et al. 2023, StreamingLLM, arXiv:2309.17453, fig. 2).


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


def mass_far_by_key_head(
    model: nn.Module, ids_bn: Tensor, *, near: int = NEAR_KEYS, first: int = SINKS, rows: int = SAMPLED_ROWS
) -> list[list[float]]:
    """The share of attention on neither the last keys nor the first ones, for each key head of every layer.

    Over texts, the query heads of a key head, and some rows: how far a head looks, as DuoAttention tells them apart.
    """

    def shares(layer: CapturedLayer) -> list[float]:
        by_row = []
        for row in some_rows(ids_bn.shape[1], rows):
            weights_bhj = layer.weights(row)
            by_row.append(weights_bhj[..., first : max(first, row + 1 - near)].sum(-1).mean(0))
        of_heads = torch.stack(by_row).mean(0).view(layer.layer.facts.groups, -1).mean(1)
        return [float(share) for share in of_heads]

    return capture_layers(model, ids_bn, shares)


def _require_some(keys: int) -> None:
    if keys < 1:
        raise InvalidValue("keys", "at least 1", keys)


# What the first tokens are worth to a stream: loss by position with them, with others, and without.
#
#     kept      attention reaches the first n_sink tokens and the last W
#     replaced  the same, with the first n_sink tokens replaced by a meaningless one
#     removed   attention reaches only the last n_sink + W tokens
#
# With line breaks as sinks the loss rises little, without sinks a lot: their content does not matter, their presence
# does (Xiao et al. 2023, StreamingLLM, arXiv:2309.17453, tables 1 and 2). Losses are of the tokens after the first
# n_sink, which are the same in all three.


class SinkLosses(NamedTuple):
    """Losses in nats of the tokens after the sinks, [texts, tokens - n_sink]."""

    kept: Tensor
    replaced: Tensor
    removed: Tensor


def without_sinks(
    model: nn.Module, ids_bn: Tensor, *, stream: Extension, substitute: int, own: TrainedExtension | None = None
) -> SinkLosses:
    """The losses under a stream with sinks; `own` is the extension that the model was trained under."""
    reach = stream.reach
    if not isinstance(reach, Sinks):
        raise InvalidValue("stream", "an extension whose reach is sinks, such as streaming", str(reach))
    if ids_bn.shape[1] <= reach.n_sink + 1:
        raise InvalidValue("ids", f"texts of more than {reach.n_sink + 1} tokens", tuple(ids_bn.shape))
    window = replace(stream, reach=Window(window=reach.n_sink + reach.window))
    other = ids_bn.clone()
    other[:, : reach.n_sink] = substitute
    runs = ((ids_bn, stream), (other, stream), (ids_bn, window))
    base = own or TrainedExtension()
    return SinkLosses(*(_losses(model, ids, line, base)[:, reach.n_sink - 1 :] for ids, line in runs))


def _losses(model: nn.Module, ids_bn: Tensor, extension: Extension, base: TrainedExtension) -> Tensor:
    with base.under(model, extension):
        return token_losses(model, ids_bn.to(device_of(host_of(model)))).losses_bn.cpu()


# The decay of attention with distance, by the method's formula alone.
#
#     g(s) = logit(n-1, n-1-s)    where every query and key is one vector, equal in all pairs, with <x, x> = sqrt(d):
#                                 scale(n-1) (2/d) sum_i cos(shown(s) theta_i) + bias(shown(s)) under full rotation
#
# The expected similarity of a token to an equal one at a distance, divided by that without rotation (Men et al. 2024,
# Base of RoPE Bounds Context Length, arXiv:2405.14591, sec. 4; the bound of Su et al. 2021, RoFormer, arXiv:2104.09864,
# sec. 3.4.3, is its envelope). For the last row of a text of n tokens; shown(s) is the effective distance. NaN where a
# key is out of reach.


def decay(extension: Extension, facts: Facts, length: int, distances: Sequence[int] | None = None) -> Tensor:
    """g(s) for s = 0 .. length-1, float64; of the first head, and of the first layer if layers differ.

    With `distances`, for these alone: they ascend from 0, and each is below the length.
    """
    plain = replace(facts, softcap=None, sinks=False, weighted=False)
    first_layer = replace(extension.at_layer(0, facts).head_parts(facts)[0].extension, positions=None, surgery=())
    weights = first_layer.weights(plain, torch.Generator().manual_seed(0))
    if not first_layer.biases and not weights:  # only these differ between heads
        plain = replace(plain, heads=1, kv_heads=None)
    keys = torch.arange(length) if distances is None else length - 1 - torch.tensor(distances).flip(0)
    x = torch.full((1, 1, 1, facts.head_dim), facts.head_dim**-0.25, dtype=torch.float64)
    # Equal in both halves of a pair: rotating one against the other leaves the cosine.
    q, k = x.expand(-1, plain.heads, -1, -1), x.expand(-1, plain.groups, len(keys), -1)
    logits = reference_logits(q, k, first_layer, plain, Tokens(keys[None]), weights=weights)
    by_distance = logits[0, 0, 0].flip(0)
    return by_distance.masked_fill(by_distance.isinf(), math.nan)


# Logits by distance: their mean, their spread, and the largest one at each distance.
#
#     over the sampled pairs (i, j) with i - j in a bin of distances:  mean l,  sd l,  max l      l = logit(i,j)
#
# Distances that did not occur in training can give logits that did not either, and one of them outweighs all others
# (Han et al. 2023, LM-Infinite, arXiv:2308.16137, sec. 3 and fig. 1a). Distances are true ones, not effective ones.
# Keys out of reach are left out; a bin with no other keys is NaN. There are four bins to a doubling.


class LogitGrowth(NamedTuple):
    """Three curves by distance for every layer."""

    mean: Curves
    spread: Curves
    largest: Curves


def logit_growth(model: nn.Module, ids_bn: Tensor, *, rows: int = SAMPLED_ROWS) -> LogitGrowth:
    """Over texts, heads and some query rows, for every layer by distance."""
    length = ids_bn.shape[1]
    bins = distance_bins(length)
    by_layer = capture_layers(model, ids_bn, lambda layer: _curves_of(layer, some_rows(length, rows), bins))
    return LogitGrowth(*(Curves(middles(bins), tuple(layers)) for layers in zip(*by_layer, strict=True)))


def _curves_of(layer: CapturedLayer, rows: list[int], bins: Tensor) -> tuple[tuple[float, ...], ...]:
    """Mean, standard deviation and maximum of a layer in each bin."""
    values, where = [], []
    for row in rows:
        logits = layer.logits(row).flatten(0, -2)  # [texts and heads, keys]
        within = logits > -torch.inf
        values.append(logits[within])
        where.append(bins[: row + 1].flip(0).expand_as(logits)[within])
    x, at, count = torch.cat(values), torch.cat(where), int(bins.max()) + 1
    number = torch.bincount(at, minlength=count)
    mean = torch.bincount(at, x, minlength=count) / number
    spread = (torch.bincount(at, (x - mean[at]).square(), minlength=count) / number).sqrt()
    largest = torch.full((count,), -torch.inf, dtype=x.dtype).scatter_reduce(0, at, x, "amax")
    largest = largest.where(number > 0, torch.nan)
    return tuple(tuple(curve.tolist()) for curve in (mean, spread, largest))
