"""The equation that every method fills in, and the reference that all fast code is checked against.

    logit(i,j) = scale(i) * < w T(i) R(theta, q_at(i)) q_i , R(theta, k_at(j)) k_j > / sqrt(d)
                 +  bias_h(q_at(i) - k_at(j))                 for every j that is within reach of i

    weight(i,j) = exp(cap(logit(i,j)) + mask(i,j))  /  ( the sum of that over j  +  exp(sink_h) )

    theta            how fast each pair is rotated               frequencies/
    q_at, k_at       the effective distance of each key          reach/
    within reach     which keys a query sees                     reach/
    bias_h           what a head adds for that distance          biases/
    scale            what a row's logits are multiplied by       scales/
    T                the same for the rotating dimensions alone  scales/ with over=rotating; 1 in all others
    h                theta and the reach may differ by key head  heads= of an extension, or of one of its layers
    i                the reach may differ in rows of tokens that the model writes: reading_window of reach/
    i, j             how tokens are numbered                     positions/
    cap, sink_h, w   the model's own, if it has them             facts.softcap, facts.sinks, facts.weighted
    mask             what a model's layer computes of its        model_mask_bhij
                     tokens: -inf hides a key

Beside the equation: how several next-token distributions combine (decoding/), and changes of the weights (surgery/).

Legend: b batch, h query head, g key head, i query, j key, d head dimension.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ropewalk.extension.extension import Extension
from ropewalk.extension.inputs import (
    ONE_TEXT,
    PAD,
    Tokens,
    layer_extension,
    related_pairs,
    require_mask,
    require_shapes,
    require_written,
)
from ropewalk.methods.facts import AFTER_ROTATION, MODEL, SINKS, Facts
from ropewalk.methods.frequencies import Frequencies, Table
from ropewalk.methods.reach import Span
from ropewalk.methods.scales import Scale
from ropewalk.methods.spec import Weights


def reference_attention(
    q_bhid: Tensor,
    k_bgjd: Tensor,
    v_bgjd: Tensor,
    extension: Extension,
    facts: Facts,
    tokens: Tokens = ONE_TEXT,
    *,
    weights: Mapping[str, Weights] | None = None,
    model_mask_bhij: Tensor | None = None,
) -> Tensor:
    """Attention by the definition: float64, quadratic, slow. Returns [batch, heads, queries, value_dim].

        facts = rw.Facts(trained_len=32, head_dim=16, heads=4, kv_heads=2)
        q, k, v = torch.randn(1, 4, 40, 16), torch.randn(1, 2, 40, 16), torch.randn(1, 2, 40, 16)
        out = rw.reference_attention(q, k, v, rw.parse("rerope:window=8"), facts)

    Args:
        q_bhid: queries, [batch, heads, queries, head_dim]: those of the last keys.
        k_bgjd: keys, [batch, kv_heads, keys, head_dim], not rotated.
        v_bgjd: values, [batch, kv_heads, keys, any size].
        extension: what is in force; where layers differ, that of one: `extension.at_layer(layer, facts)`.
        facts: what the model is.
        tokens: positions, padding, packed texts and images, where there is more than one text in each row.
        weights: what biases and scales learned, as in `extension.weights(facts)`; under "model" the logits of
            the model's sinks and its factors of rotated queries.
        model_mask_bhij: [batch, heads or 1, queries, keys], added to the logits after the cap: what a layer of
            the model hides (-inf) or prefers by itself, beside what the reach hides.

    A query without visible keys, such as a padded one, gives zeros.
    """
    require_shapes(q_bhid, k_bgjd, v_bgjd, facts)
    weight_bhij = reference_weights(
        q_bhid, k_bgjd, extension, facts, tokens, weights=weights, model_mask_bhij=model_mask_bhij
    )
    v_bhjd = _per_query_head(v_bgjd, facts)
    if tokens.positions_bj is not None:  # what stands in padding may be infinite
        v_bhjd = v_bhjd.masked_fill((tokens.positions_bj == PAD).to(v_bhjd.device)[:, None, :, None], 0)
    return weight_bhij @ v_bhjd


def reference_weights(
    q_bhid: Tensor,
    k_bgjd: Tensor,
    extension: Extension,
    facts: Facts,
    tokens: Tokens = ONE_TEXT,
    *,
    weights: Mapping[str, Weights] | None = None,
    model_mask_bhij: Tensor | None = None,
) -> Tensor:
    """The attention weights, [batch, heads, queries, keys] in float64, of the arguments of `reference_attention`."""
    logit_bhij = reference_logits(
        q_bhid, k_bgjd, extension, facts, tokens, weights=weights, model_mask_bhij=model_mask_bhij
    )
    return _softmax(logit_bhij, (weights or {}).get(MODEL, {}).get(SINKS))


def reference_logits(
    q_bhid: Tensor,
    k_bgjd: Tensor,
    extension: Extension,
    facts: Facts,
    tokens: Tokens = ONE_TEXT,
    *,
    weights: Mapping[str, Weights] | None = None,
    model_mask_bhij: Tensor | None = None,
) -> Tensor:
    """The logits of `reference_attention`'s arguments, [batch, heads, queries, keys] in float64; -inf out of reach."""
    learned, facts = weights or {}, extension.builds_on(facts)
    extension = layer_extension(extension, facts, learned)
    require_shapes(q_bhid, k_bgjd, k_bgjd, facts)
    require_mask(model_mask_bhij, q_bhid, k_bgjd)
    require_written(tokens.written_bj, k_bgjd)
    if extension.heads or (tokens.written_bj is not None and extension.writing != extension):
        return _logits_of_kinds(q_bhid, k_bgjd, extension, facts, tokens, weights=weights, mask_bhij=model_mask_bhij)
    numbers_bj = tokens.numbers(k_bgjd, extension, facts)
    before = k_bgjd.shape[2] - q_bhid.shape[2]
    numbers_bi = numbers_bj[:, before:]
    until_bi = numbers_bi
    if tokens.last_seen_bj is not None:
        until_bi = torch.maximum(numbers_bi, tokens.last_seen_bj[:, before:])
    related_bij = related_pairs(numbers_bi, numbers_bj, tokens.documents_bj, until_bi)
    padded_bj = numbers_bj == PAD
    q_bhid = q_bhid.double().masked_fill((numbers_bi == PAD)[:, None, :, None], 0)
    k_bhjd = _per_query_head(k_bgjd, facts).masked_fill(padded_bj[:, None, :, None], 0)

    i_bi, j_bj = numbers_bi.clamp(min=0), numbers_bj.clamp(min=0)
    scale_bhi = _scale([spec for spec in extension.scales if not spec.of_rotation], i_bi, facts, learned)
    rotary_scale_bhi = _scale([spec for spec in extension.scales if spec.of_rotation], i_bi, facts, learned)
    w_d = learned.get(MODEL, {}).get(AFTER_ROTATION)
    turns_p = extension.frequencies_or_rope.table(facts, 1).inv_freq * facts.trained_len / (2 * math.pi)
    logit_bhij = q_bhid.new_full((*q_bhid.shape[:3], k_bhjd.shape[2]), -torch.inf)
    for table, rows_bi in _rows_by_table(extension.frequencies_or_rope, facts, i_bi):
        for span in extension.reach_or_causal.spans():
            start_bi, stop_bi = span.bounds(i_bi)
            # A causal end moves to the last token that the query may see, as in an image.
            stop_bi = torch.where(stop_bi == i_bi + 1, until_bi + 1, stop_bi)[:, :, None]
            inside_bij = (start_bi[:, :, None] <= j_bj[:, None]) & (j_bj[:, None] < stop_bi)
            inside_bij &= related_bij & rows_bi[:, :, None]
            q_at_bi, k_at_bj = span.q_at(i_bi), span.k_at(j_bj)
            if tokens.pair_positions_bjp is None and span.pairs is None:
                rotated_q, rotated_k = _rotate_both(q_bhid, q_at_bi, k_bhjd, k_at_bj, table, facts)
            else:
                positions = j_bj[..., None] if tokens.pair_positions_bjp is None else tokens.pair_positions_bjp
                places = _places_of_pairs(span, positions[:, before:], positions, turns_p)
                rotated_q = rotate(q_bhid, places[0], table, facts.interleaved)
                rotated_k = rotate(k_bhjd, places[1], table, facts.interleaved)
            rotated_q = _scale_rotating(rotated_q, rotary_scale_bhi, table)
            rotated_q = rotated_q if w_d is None else rotated_q * w_d.to(rotated_q)
            product_bhij = scale_bhi[..., None] * (rotated_q @ rotated_k.mT) / math.sqrt(facts.head_dim)
            distance_bij = (q_at_bi[:, :, None] - k_at_bj[:, None, :]).where(inside_bij, 0)
            product_bhij = product_bhij + _bias(extension, distance_bij, i_bi, facts, learned)
            logit_bhij = torch.where(inside_bij[:, None], _capped(product_bhij, facts.softcap), logit_bhij)
    return logit_bhij if model_mask_bhij is None else logit_bhij + model_mask_bhij.double()


def _logits_of_kinds(
    q_bhid: Tensor,
    k_bgjd: Tensor,
    extension: Extension,
    facts: Facts,
    tokens: Tokens,
    *,
    weights: Mapping[str, Weights] | None,
    mask_bhij: Tensor | None,
) -> Tensor:
    """The logits where heads differ, or tokens that the model writes: of each kind as if all were of that kind."""

    def as_if(everywhere: Extension, tokens: Tokens) -> Tensor:
        more: dict[str, Any] = {"weights": weights, "model_mask_bhij": mask_bhij}
        return reference_logits(q_bhid, k_bgjd, everywhere, facts, tokens, **more)

    if extension.heads:
        logit_bhij = q_bhid.new_zeros((*q_bhid.shape[:3], k_bgjd.shape[2]), dtype=torch.float64)
        for part in extension.head_parts(facts):
            heads = list(part.query_heads(facts))
            logit_bhij[:, heads] = as_if(part.extension, tokens)[:, heads]
        return logit_bhij
    read_bhij, written_bhij = (as_if(phase, tokens._replace(written_bj=None)) for phase in extension.phases)
    written_bi = tokens.written_bj[:, -q_bhid.shape[2] :].to(q_bhid.device)  # type: ignore[index]
    return torch.where(written_bi[:, None, :, None], written_bhij, read_bhij)


def rotate(x_bhnd: Tensor, at_bn: Tensor, table: Table, interleaved: bool) -> Tensor:
    """R(theta, at) without theta's real part: rotate each pair of the leading dimensions.

    `at_bn` may have one more dimension, with a position for each pair.
    """
    pairs = len(table.inv_freq)
    angle = (at_bn[..., None] if at_bn.dim() == 2 else at_bn).double()[:, None] * table.inv_freq
    cos, sin = angle.cos(), angle.sin()
    rotary, rest = x_bhnd[..., : 2 * pairs], x_bhnd[..., 2 * pairs :]
    if interleaved:
        first, second = rotary[..., 0::2], rotary[..., 1::2]
    else:
        first, second = rotary[..., :pairs], rotary[..., pairs:]
    rotated = (first * cos - second * sin, first * sin + second * cos)
    joined = torch.stack(rotated, -1).flatten(-2) if interleaved else torch.cat(rotated, -1)
    return torch.cat([joined, rest], -1)


def grow(x_bhnd: Tensor, by_bn: Tensor, table: Table, interleaved: bool) -> Tensor:
    """Theta's real part: multiply each pair by exp(by * log_decay)."""
    factor = torch.exp(by_bn.double()[:, None, :, None] * table.log_decay)
    doubled = factor.repeat_interleave(2, -1) if interleaved else torch.cat([factor, factor], -1)
    return torch.cat([x_bhnd[..., : doubled.shape[-1]] * doubled, x_bhnd[..., doubled.shape[-1] :]], -1)


def _rotate_both(
    q_bhid: Tensor, q_at_bi: Tensor, k_bhjd: Tensor, k_at_bj: Tensor, table: Table, facts: Facts
) -> tuple[Tensor, Tensor]:
    """Rotate queries and keys by their positions. Growth counts from the largest position, so that no key overflows."""
    q_bhid = rotate(q_bhid, q_at_bi, table, facts.interleaved)
    k_bhjd = rotate(k_bhjd, k_at_bj, table, facts.interleaved)
    if not table.log_decay.any():
        return q_bhid, k_bhjd
    origin = q_at_bi.max()
    q_bhid = grow(q_bhid, q_at_bi - origin, table, facts.interleaved)
    return q_bhid, grow(k_bhjd, origin - k_at_bj, table, facts.interleaved)


def _places_of_pairs(span: Span, i_bip: Tensor, j_bjp: Tensor, turns_p: Tensor) -> tuple[Tensor, Tensor]:
    """Where each pair of queries and keys is rotated to; `turns_p` says how often it turns in the trained length."""
    if span.pairs is None:
        return span.q_at(i_bip), span.k_at(j_bjp)
    return span.pairs.q_at(i_bip, turns_p), span.pairs.k_at(j_bjp, turns_p)


def _scale_rotating(rotated_q: Tensor, rotary_scale_bhi: Tensor, table: Table) -> Tensor:
    """T(i): the rotating dimensions of queries times the temperatures of the rotation; the others unchanged."""
    rotating = 2 * len(table.inv_freq)
    return torch.cat([rotated_q[..., :rotating] * rotary_scale_bhi[..., None], rotated_q[..., rotating:]], -1)


def _scale(scales: Sequence[Scale], i_bi: Tensor, facts: Facts, learned: Mapping[str, Weights]) -> Tensor:
    """The product of scales, [batch, heads or 1, queries]."""
    total = torch.ones_like(i_bi, dtype=torch.float64)[:, None]
    for spec in scales:
        total = total * spec.scale(i_bi, facts, learned.get(spec.name, {})).movedim(0, 1)
    return total


def _bias(
    extension: Extension, distance_bij: Tensor, i_bi: Tensor, facts: Facts, learned: Mapping[str, Weights]
) -> Tensor:
    """The sum of the biases at effective distances, [batch, heads or 1, queries, keys]."""
    total = torch.zeros_like(distance_bij, dtype=torch.float64)[:, None]
    for spec in extension.biases:
        query_bij = i_bi[:, :, None].expand_as(distance_bij)
        total = total + spec.bias(distance_bij, query_bij, facts, learned.get(spec.name, {})).movedim(0, 1)
    return total


def _per_query_head(x_bgjd: Tensor, facts: Facts) -> Tensor:
    """Repeat each key head for its query heads, next to each other."""
    return x_bgjd.double().repeat_interleave(facts.heads // x_bgjd.shape[1], dim=1)


def _rows_by_table(frequencies: Frequencies, facts: Facts, i_bi: Tensor) -> Iterator[tuple[Table, Tensor]]:
    """Each distinct table with its query rows."""
    tables: dict[tuple[float, ...], tuple[Table, Tensor]] = {}
    for number in sorted(set(i_bi.flatten().tolist())):
        table = frequencies.table(facts, number + 1)
        same, rows_bi = tuple(torch.cat(table).tolist()), i_bi == number
        table = Table(*(column.to(i_bi.device) for column in table))
        tables[same] = (table, tables[same][1] | rows_bi) if same in tables else (table, rows_bi)
    yield from tables.values()


def _capped(logit_bhij: Tensor, softcap: float | None) -> Tensor:
    """cap(x) = softcap tanh(x / softcap), as Gemma 2 does (arXiv:2408.00118, section 2)."""
    return logit_bhij if softcap is None else softcap * torch.tanh(logit_bhij / softcap)


def _softmax(logit_bhij: Tensor, sink_h: Tensor | None) -> Tensor:
    """Softmax over the visible keys, and a sink where the head has one; zeros in a row without keys."""
    seeing = (logit_bhij > -torch.inf).any(-1, keepdim=True)
    logit_bhij = logit_bhij.where(seeing, 0)
    if sink_h is not None:
        sink_bhi = sink_h.double()[None, :, None].expand(logit_bhij.shape[:3])
        logit_bhij = torch.cat([sink_bhi[..., None], logit_bhij], -1)
    weight_bhij = torch.softmax(logit_bhij, -1)
    return (weight_bhij if sink_h is None else weight_bhij[..., 1:]).where(seeing, 0)
