"""One entry: exact attention under any extension, by the fastest backend that supports it.

Legend: b batch, h query head, g key head, i query, j key, d head dimension.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ropewalk.attention.dispatch import attend_sequences, explain_sequences
from ropewalk.attention.layout.segments import SpanKeys
from ropewalk.attention.layout.sequences import SequenceGroup, merge_batch, sequence_groups, split_batch
from ropewalk.attention.layout.shared import once
from ropewalk.attention.problem import LayerTerms, layer_terms
from ropewalk.extension import Extension
from ropewalk.facts import Facts
from ropewalk.inputs import number_keys, require_kinship, require_shapes
from ropewalk.positions import Sequential
from ropewalk.spec import Weights


def attend(
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
    """Causal attention under an extension; equal to `reference_attention` with the same arguments, but fast.

    `q_bhid` is [batch, heads, queries, head_dim], `k_bgjd` [batch, kv_heads, keys, head_dim] and `v_bgjd` [batch,
    kv_heads, keys, any size]; the queries are the last of the keys. The result is [batch, heads, queries, value size],
    in the type of the inputs; a padded query gives zeros. Gradients reach all inputs and `weights`.

    `positions_bj`, [batch, keys], numbers the keys: ascending within each sequence, -1 for padding. `documents_bj`,
    [batch, keys], separates packed sequences. `weights` are the learned numbers, as in `extension.weights(facts)`.

        facts = Facts(trained_len=4096, head_dim=64, heads=8, kv_heads=2)
        q, k, v = torch.randn(1, 8, 9000, 64), torch.randn(1, 2, 9000, 64), torch.randn(1, 2, 9000, 64)
        out = attend(q, k, v, parse("rerope:window=1024"), facts)  # [1, 8, 9000, 64]
    """
    terms, groups = _prepared(q_bhid, k_bgjd, v_bgjd, extension, facts, positions_bj, documents_bj, layer, weights)
    query_slots = [group.query_slots(k_bgjd.shape[2] - q_bhid.shape[2]) for group in groups]
    queries = split_batch(q_bhid, groups, query_slots)
    keys, values = (split_batch(x, groups, [group.slots for group in groups]) for x in (k_bgjd, v_bgjd))
    with torch.autocast(q_bhid.device.type, enabled=False):
        outputs = [
            attend_sequences(q, group.query_numbers, _for_every_span(k, v, group, terms), terms)
            for q, k, v, group in zip(queries, keys, values, groups, strict=True)
        ]
    return merge_batch(outputs, groups, query_slots, v_bgjd.new_zeros(*q_bhid.shape[:3], v_bgjd.shape[-1]))


def explain(
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
) -> str:
    """Which backend `attend` would use with the same arguments and why: a line for each group of equal sequences.

    Nothing is computed. With the arguments of the example of `attend`, the result is

        1 row, 9000 queries, 9000 keys: flash: 3 tiles by fused kernels, 40,504,500 query-key pairs
    """
    terms, groups = _prepared(q_bhid, k_bgjd, v_bgjd, extension, facts, positions_bj, documents_bj, layer, weights)
    lines = []
    for group in groups:
        keys = _for_every_span(k_bgjd, v_bgjd, group, terms)
        rows = f"{len(group.batch)} row{'s' * (len(group.batch) > 1)}"
        backend = explain_sequences(q_bhid[:, :, : group.queries], group.query_numbers, keys, terms)
        lines.append(f"{rows}, {group.queries} queries, {len(group.numbers)} keys: {backend}")
    return "\n".join(lines)


def _for_every_span(k_bgjd: Tensor, v_bgjd: Tensor, group: SequenceGroup, terms: LayerTerms) -> list[SpanKeys]:
    """All spans read the same keys here."""
    return [SpanKeys(k_bgjd, v_bgjd, group.numbers)] * len(terms.extension.spans.spans())


def _prepared(
    q_bhid: Tensor,
    k_bgjd: Tensor,
    v_bgjd: Tensor,
    extension: Extension,
    facts: Facts,
    positions_bj: Tensor | None,
    documents_bj: Tensor | None,
    layer: int | None,
    weights: Mapping[str, Weights] | None,
) -> tuple[LayerTerms, list[SequenceGroup]]:
    """Check everything before any work; the layer's terms, and the batch as sequence groups."""
    require_shapes(q_bhid, k_bgjd, v_bgjd, facts)
    require_kinship(q_bhid, k_bgjd, v_bgjd)
    terms, queries = layer_terms(extension, facts, layer, weights), q_bhid.shape[2]

    def groups() -> list[SequenceGroup]:
        return sequence_groups(number_keys(k_bgjd, positions_bj, documents_bj, terms.extension), documents_bj, queries)

    if not isinstance(terms.extension.numbering, Sequential):  # others may draw random numbers, anew in every call
        return terms, groups()
    spec = (queries, k_bgjd.shape, positions_bj is None, documents_bj is None)
    tensors = tuple(tensor for tensor in (positions_bj, documents_bj) if tensor is not None)
    return terms, once("sequence groups", spec, tensors, groups)
