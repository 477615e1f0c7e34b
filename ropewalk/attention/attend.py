"""One entry: attention under any extension, exact, by the fastest way that carries it.

Legend: b batch, h query head, g key head, i query, j key, d head dimension.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ropewalk.attention.dispatch import LayerTerms, attend_sequences, explain_sequences
from ropewalk.attention.layout.segments import SpanKeys
from ropewalk.attention.layout.sequences import SequenceGroup, merge_batch, sequence_groups, split_batch
from ropewalk.attention.layout.shared import once
from ropewalk.extension import Extension
from ropewalk.facts import Facts
from ropewalk.inputs import in_force, number_keys, require_kinship, require_shapes
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
    """What `reference_attention` defines, in the type of what comes in: same arguments, same answer."""
    terms, found = _prepared(q_bhid, k_bgjd, v_bgjd, extension, facts, positions_bj, documents_bj, layer, weights)
    places = [text.asked(k_bgjd.shape[2] - q_bhid.shape[2]) for text in found]
    queries = split_batch(q_bhid, found, places)
    keys, values = (split_batch(x, found, [text.slots for text in found]) for x in (k_bgjd, v_bgjd))
    with torch.autocast(q_bhid.device.type, enabled=False):
        answers = [
            attend_sequences(q, text.asking, _for_every_span(k, v, text, terms), terms)
            for q, k, v, text in zip(queries, keys, values, found, strict=True)
        ]
    return merge_batch(answers, found, places, v_bgjd.new_zeros(*q_bhid.shape[:3], v_bgjd.shape[-1]))


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
    """Which way `attend` would take with the same arguments, text by text, and why. Nothing is computed."""
    terms, found = _prepared(q_bhid, k_bgjd, v_bgjd, extension, facts, positions_bj, documents_bj, layer, weights)
    lines = []
    for text in found:
        keys = _for_every_span(k_bgjd, v_bgjd, text, terms)
        rows = f"{len(text.batch)} row{'s' * (len(text.batch) > 1)}"
        way = explain_sequences(q_bhid[:, :, : text.queries], text.asking, keys, terms)
        lines.append(f"{rows}, {text.queries} queries, {len(text.numbers)} keys: {way}")
    return "\n".join(lines)


def _for_every_span(k_bgjd: Tensor, v_bgjd: Tensor, text: SequenceGroup, terms: LayerTerms) -> list[SpanKeys]:
    """All spans read the same keys here."""
    return [SpanKeys(k_bgjd, v_bgjd, text.numbers)] * len(terms.extension.spans.spans())


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
    """Everything checked before any work, the layer's extension, and the batch as texts."""
    require_shapes(q_bhid, k_bgjd, v_bgjd, facts)
    require_kinship(q_bhid, k_bgjd, v_bgjd)
    own, queries, facts = weights or {}, q_bhid.shape[2], extension.ground(facts)

    def settled() -> tuple[Extension, list[SequenceGroup]]:
        ruling = in_force(extension, facts, layer, own)
        return ruling, sequence_groups(number_keys(k_bgjd, positions_bj, documents_bj, ruling), documents_bj, queries)

    spec = (extension, facts, layer, queries, k_bgjd.shape, positions_bj is None, documents_bj is None)
    given = tuple(each for each in (positions_bj, documents_bj) if each is not None)
    # Random numbers are drawn anew by every call, and what was learned is each layer's own.
    ruling, found = settled() if own or extension.positions else once("texts", spec, given, settled)
    return LayerTerms(ruling, facts, own), found
