"""One entry: exact attention under any extension, by the fastest backend that supports it.

Legend: b batch, h query head, g key head, i query, j key, d head dimension.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from ropewalk.attention.dispatch import attend_phases, explain_sequences, mask_of_rows, rows_of_phases, zeros_of
from ropewalk.attention.layout.segments import SpanKeys
from ropewalk.attention.layout.sequences import (
    SequenceGroup,
    compute_once,
    merge_batch,
    sequence_groups,
    split_batch,
    split_mask,
)
from ropewalk.attention.problem import LayerTerms, PartTerms, join_heads, layer_terms, take_heads
from ropewalk.extension.extension import Extension
from ropewalk.extension.inputs import ONE_TEXT, Tokens, require_kinship, require_mask, require_shapes, require_written
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

    Args:
        q_bhid: queries, [batch, heads, queries, head_dim]: those of the last keys.
        k_bgjd: keys, [batch, kv_heads, keys, head_dim], not rotated.
        v_bgjd: values, [batch, kv_heads, keys, any size].
        extension: what is in force; where layers differ, that of one: `extension.at_layer(layer, facts)`.
        facts: what the model is.
        tokens: positions, padding, packed texts and images, where there is more than one text in each row.
        weights: what biases and scales learned, as in `extension.weights(facts)`.
        model_mask_bhij: [batch, heads or 1, queries, keys], what a layer of the model adds to its logits by itself.

    The result is [batch, heads, queries, value size], in the type of the inputs; a padded query gives zeros. Gradients
    reach all inputs and `weights`.

        facts = Facts(trained_len=4096, head_dim=64, heads=8, kv_heads=2)
        q, k, v = torch.randn(1, 8, 9000, 64), torch.randn(1, 2, 9000, 64), torch.randn(1, 2, 9000, 64)
        out = attend(q, k, v, parse("rerope:window=1024"), facts)  # [1, 8, 9000, 64]
    """
    require_mask(model_mask_bhij, q_bhid, k_bgjd)
    terms, groups = _prepare(q_bhid, k_bgjd, v_bgjd, extension, facts, tokens, weights)
    if not groups:
        return zeros_of(q_bhid, k_bgjd, v_bgjd, [x for group in terms.weights.values() for x in group.values()])
    parts = terms.parts()
    outputs = [_attend_part(*_of_heads(part, q_bhid, k_bgjd, v_bgjd, model_mask_bhij), part, groups) for part in parts]
    return join_heads(parts, outputs)


def _of_heads(
    part: PartTerms, q_bhid: Tensor, k_bgjd: Tensor, v_bgjd: Tensor, mask_bhij: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """What attention reads for some heads of a layer."""
    if mask_bhij is not None and mask_bhij.shape[1] > 1:
        mask_bhij = take_heads(mask_bhij, part.query_heads)
    keys, values = (take_heads(x, part.key_heads) for x in (k_bgjd, v_bgjd))
    return take_heads(q_bhid, part.query_heads), keys, values, mask_bhij


def _attend_part(
    q_bhid: Tensor,
    k_bgjd: Tensor,
    v_bgjd: Tensor,
    mask_bhij: Tensor | None,
    part: PartTerms,
    groups: Sequence[SequenceGroup],
) -> Tensor:
    """Attention of the heads in which the same is in force."""
    query_slots = [group.query_slots(k_bgjd.shape[2] - q_bhid.shape[2]) for group in groups]
    queries = split_batch(q_bhid, groups, query_slots)
    keys, values = (split_batch(x, groups, [group.slots for group in groups]) for x in (k_bgjd, v_bgjd))
    masks = split_mask(mask_bhij, groups, query_slots)
    with torch.autocast(q_bhid.device.type, enabled=False):
        phases = (_keys_of_phases(k, v, group, part.terms) for k, v, group in zip(keys, values, groups, strict=True))
        outputs = [
            attend_phases(q, group.query_numbers, group.queries_written, pairs, part.terms, mask)
            for q, pairs, group, mask in zip(queries, phases, groups, masks, strict=True)
        ]
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

    Nothing is computed. With the arguments of the example of `attend`, the result is

        1 row, 9000 queries, 9000 keys: flash: 3 tiles by fused kernels, 40,504,500 query-key pairs
    """
    require_mask(model_mask_bhij, q_bhid, k_bgjd)
    terms, groups = _prepare(q_bhid, k_bgjd, v_bgjd, extension, facts, tokens, weights)
    lines, query_slots = [], [group.query_slots(k_bgjd.shape[2] - q_bhid.shape[2]) for group in groups]
    for part in terms.parts():
        q, k, v, whole_mask = _of_heads(part, q_bhid, k_bgjd, v_bgjd, model_mask_bhij)
        heads = f", {k.shape[1]} of {k_bgjd.shape[1]} key heads" if terms.extension.heads else ""
        for group, mask in zip(groups, split_mask(whole_mask, groups, query_slots), strict=True):
            keys, i = _keys_of_phases(k, v, group, part.terms), group.query_numbers
            rows = f"{len(group.batch)} row{'s' * (len(group.batch) > 1)}"
            for chosen, phase in rows_of_phases(group.queries_written, part.terms):
                asked, terms_there = q[:, :, : len(i[chosen])], part.terms.phases[phase]
                backend = explain_sequences(asked, i[chosen], keys[phase], terms_there, mask_of_rows(mask, chosen))
                written = " written" if phase else ""
                lines.append(f"{rows}, {len(i[chosen])}{written} queries, {len(group.numbers)} keys{heads}: {backend}")
    return "\n".join(lines)


def _keys_of_phases(k_bgjd: Tensor, v_bgjd: Tensor, group: SequenceGroup, terms: LayerTerms) -> list[list[SpanKeys]]:
    """The keys of each span of each phase: all spans read the same ones here."""
    span_keys = SpanKeys(k_bgjd, v_bgjd, group.numbers, False, group.pair_positions, group.last_seen)
    return [[span_keys] * len(phase.extension.reach_or_causal.spans()) for phase in terms.phases]


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
    require_written(tokens.written_bj, k_bgjd)
    if len(terms.phases) == 1:
        tokens = tokens._replace(written_bj=None)

    def groups() -> list[SequenceGroup]:
        return sequence_groups(tokens.numbers(k_bgjd, terms.extension, terms.facts), tokens, queries)

    # What images bring is checked against each layer's extension; other numberings may draw random numbers anew.
    if tokens.of_images or not isinstance(terms.extension.positions_or_sequential, Sequential):
        return terms, groups()
    spec = (queries, k_bgjd.shape, *(x is None for x in tokens))
    return terms, compute_once("sequence groups", spec, tuple(x for x in tokens if x is not None), groups)
