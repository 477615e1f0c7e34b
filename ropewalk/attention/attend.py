"""One entry: exact attention under any extension, by the fastest backend that supports it.

Legend: b batch, h query head, g key head, i query, j key, d head dimension.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ropewalk.attention.dispatch import attend_sequences, explain_sequences, zeros_of
from ropewalk.attention.layout.segments import SpanKeys
from ropewalk.attention.layout.sequences import (
    SequenceGroup,
    compute_once,
    merge_batch,
    sequence_groups,
    split_batch,
    split_mask,
)
from ropewalk.attention.problem import LayerTerms, layer_terms
from ropewalk.extension.extension import Extension
from ropewalk.extension.inputs import ONE_TEXT, Tokens, require_kinship, require_mask, require_shapes
from ropewalk.methods.facts import Facts
from ropewalk.methods.positions import Sequential
from ropewalk.methods.spec import Weights


def attend(
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
    """Causal attention under an extension; equal to `reference_attention` with the same arguments, but fast.

    q_bhid: queries, [batch, heads, queries, head_dim]: those of the last keys
    k_bgjd: keys, [batch, kv_heads, keys, head_dim], not rotated
    v_bgjd: values, [batch, kv_heads, keys, any size]
    extension: what is in force; where layers differ, that of one: `extension.at_layer(layer, facts)`
    facts: what the model is
    tokens: positions, padding, packed texts and images, where there is more than one text in each row
    weights: what biases and scales learned, as in `extension.weights(facts)`
    model_mask_bhij: [batch, heads or 1, queries, keys], what a layer of the model adds to its logits by itself

    The result is [batch, heads, queries, value size], in the type of the inputs; a padded query gives zeros. Gradients
    reach all inputs and `weights`.

        facts = Facts(trained_len=4096, head_dim=64, heads=8, kv_heads=2)
        q, k, v = torch.randn(1, 8, 9000, 64), torch.randn(1, 2, 9000, 64), torch.randn(1, 2, 9000, 64)
        out = attend(q, k, v, parse("rerope:window=1024"), facts)  # [1, 8, 9000, 64]
    """
    require_mask(model_mask_bhij, q_bhid, k_bgjd)
    terms, groups = _prepare(q_bhid, k_bgjd, v_bgjd, extension, facts, tokens, weights)
    query_slots = [group.query_slots(k_bgjd.shape[2] - q_bhid.shape[2]) for group in groups]
    queries = split_batch(q_bhid, groups, query_slots)
    keys, values = (split_batch(x, groups, [group.slots for group in groups]) for x in (k_bgjd, v_bgjd))
    masks = split_mask(model_mask_bhij, groups, query_slots)
    with torch.autocast(q_bhid.device.type, enabled=False):
        outputs = [
            attend_sequences(q, group.query_numbers, _for_every_span(k, v, group, terms), terms, mask)
            for q, k, v, group, mask in zip(queries, keys, values, groups, masks, strict=True)
        ]
    if not outputs:
        return zeros_of(q_bhid, k_bgjd, v_bgjd, [x for group in terms.weights.values() for x in group.values()])
    return merge_batch(outputs, groups, query_slots, v_bgjd.new_zeros(*q_bhid.shape[:3], v_bgjd.shape[-1]))


def explain(
    q_bhid: Tensor,
    k_bgjd: Tensor,
    v_bgjd: Tensor,
    extension: Extension,
    facts: Facts,
    tokens: Tokens = ONE_TEXT,
    *,
    weights: Mapping[str, Weights] | None = None,
    model_mask_bhij: Tensor | None = None,
) -> str:
    """Which backend `attend` would use with the same arguments and why: a line for each group of equal sequences.

    q_bhid, k_bgjd, v_bgjd, extension, facts, tokens, weights, model_mask_bhij: as for `attend`

    Nothing is computed. With the arguments of the example of `attend`, the result is

        1 row, 9000 queries, 9000 keys: flash: 3 tiles by fused kernels, 40,504,500 query-key pairs
    """
    require_mask(model_mask_bhij, q_bhid, k_bgjd)
    terms, groups = _prepare(q_bhid, k_bgjd, v_bgjd, extension, facts, tokens, weights)
    lines, query_slots = [], [group.query_slots(k_bgjd.shape[2] - q_bhid.shape[2]) for group in groups]
    for group, mask in zip(groups, split_mask(model_mask_bhij, groups, query_slots), strict=True):
        keys = _for_every_span(k_bgjd, v_bgjd, group, terms)
        rows = f"{len(group.batch)} row{'s' * (len(group.batch) > 1)}"
        backend = explain_sequences(q_bhid[:, :, : group.queries], group.query_numbers, keys, terms, mask)
        lines.append(f"{rows}, {group.queries} queries, {len(group.numbers)} keys: {backend}")
    return "\n".join(lines)


def _for_every_span(k_bgjd: Tensor, v_bgjd: Tensor, group: SequenceGroup, terms: LayerTerms) -> list[SpanKeys]:
    """All spans read the same keys here."""
    span_keys = SpanKeys(k_bgjd, v_bgjd, group.numbers, False, group.pair_positions, group.last_seen)
    return [span_keys] * len(terms.extension.reach_or_causal.spans())


def _prepare(
    q_bhid: Tensor,
    k_bgjd: Tensor,
    v_bgjd: Tensor,
    extension: Extension,
    facts: Facts,
    tokens: Tokens,
    weights: Mapping[str, Weights] | None,
) -> tuple[LayerTerms, list[SequenceGroup]]:
    """Check everything before any work; the layer's terms, and the batch as sequence groups."""
    require_shapes(q_bhid, k_bgjd, v_bgjd, facts)
    require_kinship(q_bhid, k_bgjd, v_bgjd)
    terms, queries = layer_terms(extension, facts, weights), q_bhid.shape[2]

    def groups() -> list[SequenceGroup]:
        return sequence_groups(tokens.numbers(k_bgjd, terms.extension, terms.facts), tokens, queries)

    # What images bring is checked against each layer's extension; other numberings may draw random numbers anew.
    if tokens.of_images or not isinstance(terms.extension.positions_or_sequential, Sequential):
        return terms, groups()
    spec = (queries, k_bgjd.shape, tokens.positions_bj is None, tokens.documents_bj is None)
    return terms, compute_once("sequence groups", spec, tuple(x for x in tokens if x is not None), groups)
