"""The equation that every method fills in, and the one oracle that everything fast is checked against.

    logit(i,j) = scale(i) * < R(theta, q_at(i)) q_i , R(theta, k_at(j)) k_j > / sqrt(d)  +  bias_h(i - j)
                 for every j that is within reach of i

    theta            how fast each pair turns                    frequencies/
    q_at, k_at       how far away each key appears               reach/
    within reach     which keys a query sees                     reach/
    bias_h           what a head adds for the distance           biases/
    scale            what a row's logits are multiplied by       scales/
    i, j             how tokens are numbered                     positions/

Beside the equation: how several next-token distributions combine (decoding/) and what changes the weights (surgery/).

Legend: b batch, h query head, g key head, i query, j key, d head dimension.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from ropewalk.errors import InvalidValue
from ropewalk.extension import Extension
from ropewalk.facts import Facts
from ropewalk.frequencies import Frequencies, Table
from ropewalk.spec import Weights

PAD = -1  # the number of a token that is no token


def reference_attention(
    q_bhid: Tensor,
    k_bgjd: Tensor,
    v_bgjd: Tensor,
    extension: Extension,
    facts: Facts,
    *,
    positions_bj: Tensor | None = None,
    documents_bj: Tensor | None = None,
    layer: int | None = None,
    weights: Mapping[str, Weights] | None = None,
) -> Tensor:
    """Attention by the definition: float64, quadratic, slow.

    The queries are those of the last keys. `positions_bj` numbers the keys (as the extension does if not given; PAD
    where a row is padded), `documents_bj` tells packed texts apart. `weights` holds what biases and scales learned, by
    method name. A query that sees nothing, such as a padded one, gives zeros.
    """
    _check_shapes(q_bhid, k_bgjd, v_bgjd, facts)
    extension = extension.at_layer(layer, facts)
    extension.check_against(facts)
    numbers_bj = _numbers(k_bgjd, positions_bj, extension)
    numbers_bi = numbers_bj[:, numbers_bj.shape[1] - q_bhid.shape[2] :]
    distance_bij = numbers_bi[:, :, None] - numbers_bj[:, None, :]
    related_bij = (distance_bij >= 0) & (numbers_bj != PAD)[:, None, :] & (numbers_bi != PAD)[:, :, None]
    if documents_bj is not None:
        documents_bi = documents_bj[:, -q_bhid.shape[2] :]
        related_bij &= documents_bi[:, :, None] == documents_bj[:, None, :]

    q_bhid, k_bhjd, v_bhjd = q_bhid.double(), _per_query_head(k_bgjd, facts), _per_query_head(v_bgjd, facts)
    product_bhij = q_bhid.new_zeros(*q_bhid.shape[:3], k_bhjd.shape[2])
    visible_bij = torch.zeros_like(related_bij)
    for table, rows_bi in _rows_by_table(extension.theta, facts, numbers_bi):
        for span in extension.spans.spans():
            start_bi, stop_bi = (bound[:, :, None] for bound in span.bounds(numbers_bi.clamp(min=0)))
            inside_bij = (start_bi <= numbers_bj[:, None, :]) & (numbers_bj[:, None, :] < stop_bi)
            inside_bij &= related_bij & rows_bi[:, :, None]
            turned_q = rotate(q_bhid, span.q_at(numbers_bi.clamp(min=0)), table, facts.interleaved)
            turned_k = rotate(k_bhjd, span.k_at(numbers_bj.clamp(min=0)), table, facts.interleaved, key=True)
            product_bhij = torch.where(inside_bij[:, None], turned_q @ turned_k.mT, product_bhij)
            visible_bij |= inside_bij

    learned = weights or {}
    logit_bhij = product_bhij / math.sqrt(q_bhid.shape[-1])
    for scale in extension.scales:
        factor_hbi = scale.scale(numbers_bi.clamp(min=0), facts, learned.get(scale.name, {}))
        logit_bhij = logit_bhij * factor_hbi.movedim(0, 1)[:, :, :, None]
    for bias in extension.biases:
        query_bij = numbers_bi[:, :, None].expand_as(distance_bij).clamp(min=0)
        added_hbij = bias.bias(distance_bij.clamp(min=0), query_bij, facts, learned.get(bias.name, {}))
        logit_bhij = logit_bhij + added_hbij.movedim(0, 1)
    return _softmax(logit_bhij, visible_bij[:, None]) @ v_bhjd


def rotate(x_bhnd: Tensor, at_bn: Tensor, table: Table, interleaved: bool, *, key: bool = False) -> Tensor:
    """R(theta, at): turn each pair of the leading dimensions, and let it grow or shrink where theta has a real part."""
    pairs = len(table.inv_freq)
    angle = at_bn.double()[:, None, :, None] * table.inv_freq
    growth = torch.exp(at_bn.double()[:, None, :, None] * table.log_decay * (-1 if key else 1))
    turning, still = x_bhnd[..., : 2 * pairs], x_bhnd[..., 2 * pairs :]
    if interleaved:
        first, second = turning[..., 0::2], turning[..., 1::2]
    else:
        first, second = turning[..., :pairs], turning[..., pairs:]
    turned = (
        (first * angle.cos() - second * angle.sin()) * growth,
        (first * angle.sin() + second * angle.cos()) * growth,
    )
    joined = torch.stack(turned, -1).flatten(-2) if interleaved else torch.cat(turned, -1)
    return torch.cat([joined, still], -1)


def _check_shapes(q_bhid: Tensor, k_bgjd: Tensor, v_bgjd: Tensor, facts: Facts) -> None:
    batch, length = k_bgjd.shape[0], k_bgjd.shape[2]
    queries = q_bhid.shape[2]
    if q_bhid.shape != (batch, facts.heads, queries, facts.head_dim) or queries > length:
        rule = f"[{batch}, {facts.heads} heads, at most {length}, {facts.head_dim}] as the facts and keys say"
        raise InvalidValue("q", rule, tuple(q_bhid.shape))
    if k_bgjd.shape != (batch, facts.groups, length, facts.head_dim):
        rule = f"[{batch}, {facts.groups} key heads, {length}, {facts.head_dim}] as the facts say"
        raise InvalidValue("k", rule, tuple(k_bgjd.shape))
    if v_bgjd.shape[:3] != k_bgjd.shape[:3]:
        raise InvalidValue("v", f"of as many heads and tokens as k {tuple(k_bgjd.shape)}", tuple(v_bgjd.shape))


def _numbers(k_bgjd: Tensor, positions_bj: Tensor | None, extension: Extension) -> Tensor:
    batch, length = k_bgjd.shape[0], k_bgjd.shape[2]
    if positions_bj is None:
        return extension.numbering.number(length).expand(batch, length)
    if positions_bj.shape != (batch, length):
        raise InvalidValue("positions_bj", f"of shape {(batch, length)}", tuple(positions_bj.shape))
    return positions_bj


def _per_query_head(x_bgjd: Tensor, facts: Facts) -> Tensor:
    """Each key head as often as it has query heads, next to each other."""
    return x_bgjd.double().repeat_interleave(facts.heads // x_bgjd.shape[1], dim=1)


def _rows_by_table(frequencies: Frequencies, facts: Facts, numbers_bi: Tensor) -> Iterator[tuple[Table, Tensor]]:
    """Each distinct table with the query rows it belongs to."""
    tables: dict[tuple[float, ...], tuple[Table, Tensor]] = {}
    for number in sorted(set(numbers_bi.flatten().tolist())):
        table = frequencies.table(facts, max(number, 0) + 1)
        same = tuple(torch.cat(table).tolist())
        rows_bi = numbers_bi == number
        tables[same] = (table, tables[same][1] | rows_bi) if same in tables else (table, rows_bi)
    yield from tables.values()


def _softmax(logit_bhij: Tensor, visible_b1ij: Tensor) -> Tensor:
    """Softmax over the visible keys; zeros in a row that sees none."""
    seeing = visible_b1ij.any(-1, keepdim=True)
    hidden = logit_bhij.masked_fill(~visible_b1ij & seeing, -torch.inf)
    return torch.where(visible_b1ij, torch.softmax(hidden, -1), 0.0)
