"""Attention of some queries of one sequence to the keys of each span, by the backend that `choose` picks.

Legend: b batch, h query head, g key head, i query, j key, d head dimension.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ropewalk.attention.backends.choose import choose
from ropewalk.attention.layout.segments import Segment, SpanKeys, segments_of, stages
from ropewalk.attention.layout.shared import SharedLayout, once, sharing
from ropewalk.attention.problem import AttentionInputs, LayerTerms, Problem

AT_ONCE = 8  # tables: each has its own copy of the keys


def attend_sequences(q_bhid: Tensor, i: Tensor, keys: Sequence[SpanKeys], terms: LayerTerms) -> Tensor:
    """The output of the queries numbered i over each span's keys. Many rotary tables are computed one by one."""
    rows_of_tables = stages(terms.extension, terms.facts, i)
    if len(rows_of_tables) <= AT_ONCE:
        return _attend_rows(q_bhid, i, keys, terms)
    queries = torch.split(q_bhid, [rows.stop - rows.start for rows in rows_of_tables], 2)
    pairs = zip(queries, rows_of_tables, strict=True)
    return torch.cat([_attend_stage(q, i[rows], keys, terms) for q, rows in pairs], 2)


def _attend_stage(q_bhid: Tensor, i: Tensor, keys: Sequence[SpanKeys], terms: LayerTerms) -> Tensor:
    """The output of rows that share a table. Their copy of the keys is dropped at once: layers do not share it, and
    the backward pass computes it again."""
    visible = keys_up_to(keys, i)

    def output() -> Tensor:
        with sharing(SharedLayout()):
            return _attend_rows(q_bhid, i, visible, terms)

    if not torch.is_grad_enabled():
        return output()
    out_bhid: Tensor = checkpoint(output, use_reentrant=False, preserve_rng_state=False)
    return out_bhid


def explain_sequences(q_bhid: Tensor, i: Tensor, keys: Sequence[SpanKeys], terms: LayerTerms) -> str:
    """Which backend `attend_sequences` would use, and why."""
    rows_of_tables = stages(terms.extension, terms.facts, i)
    if len(rows_of_tables) > AT_ONCE:
        rows = rows_of_tables[-1]
        last = explain_sequences(q_bhid[:, :, rows], i[rows], keys_up_to(keys, i[rows]), terms)
        return f"{len(rows_of_tables)} tables, one at a time, the last one by {last}"
    segments = segments_of(terms.extension, terms.facts, i, [span_keys.numbers for span_keys in keys])
    choice = choose(problem_of(q_bhid, keys, segments, terms))
    return f"{choice.backend.name}: {choice.why}"


def keys_up_to(keys: Sequence[SpanKeys], i: Tensor) -> list[SpanKeys]:
    """The keys up to the last query. Spans that shared their keys still share them."""
    cut = {id(span_keys): span_keys.up_to(i[-1]) for span_keys in keys}
    return [cut[id(span_keys)] for span_keys in keys]


def _attend_rows(q_bhid: Tensor, i: Tensor, keys: Sequence[SpanKeys], terms: LayerTerms) -> Tensor:
    """All rows together."""
    numbers = [span_keys.numbers for span_keys in keys]
    segments = once(
        "segments", terms[:2], (i, *numbers), lambda: segments_of(terms.extension, terms.facts, i, numbers), len(i)
    )
    if not segments:
        return q_bhid.new_zeros(*q_bhid.shape[:3], keys[0].v_bgjd.shape[-1])
    problem = problem_of(q_bhid, keys, segments, terms)
    choice = choose(problem)
    if choice.double:
        q_bhid, keys = q_bhid.double(), _in_float64(keys)
    return choice.backend.run(AttentionInputs(problem, terms, q_bhid, i.to(q_bhid.device), keys))


def problem_of(q_bhid: Tensor, keys: Sequence[SpanKeys], segments: Sequence[Segment], terms: LayerTerms) -> Problem:
    """What these segments ask of a backend."""
    groups = [terms.weights.get(spec.name, {}) for spec in terms.extension.biases]
    learning = torch.is_grad_enabled() and any(value.requires_grad for group in groups for value in group.values())
    sizes = (q_bhid.shape[2], len(keys[0].numbers), q_bhid.shape[-1], keys[0].v_bgjd.shape[-1])
    one_key_set = not any(span_keys.rotated or span_keys.k_bgjd is not keys[0].k_bgjd for span_keys in keys)
    problem = Problem(terms.extension, segments, *sizes, q_bhid.dtype, q_bhid.device, learning, one_key_set)
    return problem._replace(softcap=terms.facts.softcap)


def _in_float64(keys: Sequence[SpanKeys]) -> list[SpanKeys]:
    """The same keys in float64. Spans that shared their keys still share them."""
    doubles = {id(span_keys.k_bgjd): span_keys.k_bgjd.double() for span_keys in keys}
    return [span_keys._replace(k_bgjd=doubles[id(span_keys.k_bgjd)]) for span_keys in keys]
