"""Attention of some queries of one sequence to the keys of each span, by the backend that `choose` picks.

Legend: b batch, h query head, g key head, i query, j key, d head dimension.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ropewalk.attention.backends.choose import choose
from ropewalk.attention.layout.segments import Segment, SpanKeys, segments_of, stages
from ropewalk.attention.layout.sequences import SharedLayout, compute_once, share_results
from ropewalk.attention.problem import AttentionInputs, LayerTerms, Problem

MOST_TABLES = 8  # tables: each has its own copy of the keys


def attend_sequences(
    q_bhid: Tensor, i: Tensor, keys: Sequence[SpanKeys], terms: LayerTerms, mask_bhij: Tensor | None = None
) -> Tensor:
    """The output of the queries numbered i over each span's keys. Many rotary tables are computed one by one.

    `mask_bhij` is the model's own; then all spans read the same keys.
    """
    rows_of_tables = stages(terms.extension, terms.facts, i)
    if len(rows_of_tables) <= MOST_TABLES:
        return _attend_rows(q_bhid, i, keys, terms, mask_bhij)
    queries = torch.split(q_bhid, [rows.stop - rows.start for rows in rows_of_tables], 2)
    pairs = zip(queries, rows_of_tables, strict=True)
    return torch.cat([_attend_stage(q, i[rows], keys, terms, mask_of_rows(mask_bhij, rows)) for q, rows in pairs], 2)


def attend_phases(
    q_bhid: Tensor,
    i: Tensor,
    written_i: Tensor | None,
    keys: Sequence[Sequence[SpanKeys]],
    terms: LayerTerms,
    mask_bhij: Tensor | None = None,
) -> Tensor:
    """The output of the queries numbered i, of which the model wrote some: each by the terms of its phase.

    `keys` has the keys of each span for each of `terms.phases`.
    """
    outputs, order = list[Tensor](), list[Tensor]()
    for rows, phase in rows_of_phases(written_i, terms):
        place = rows if isinstance(rows, slice) else rows.to(q_bhid.device)
        mask = mask_of_rows(mask_bhij, place)
        outputs.append(attend_sequences(q_bhid[:, :, place], i[rows], keys[phase], terms.phases[phase], mask))
        order.append(torch.arange(len(i))[rows])
    if len(outputs) == 1:
        return outputs[0]
    joined, at = torch.cat(outputs, 2), torch.cat(order)
    return joined if bool((at.diff() > 0).all()) else joined[:, :, torch.argsort(at).to(joined.device)]


def rows_of_phases(written_i: Tensor | None, terms: LayerTerms) -> list[tuple[slice | Tensor, int]]:
    """The queries of each phase that has some, and which of `terms.phases` it is."""
    if written_i is None or len(terms.phases) == 1 or not written_i.any():
        return [(slice(None), 0)]
    if written_i.all():
        return [(slice(None), 1)]
    return [(_adjacent((written_i == bool(phase)).nonzero().flatten()), phase) for phase in (0, 1)]


def _adjacent(rows: Tensor) -> slice | Tensor:
    """Rows as a slice where they are adjacent: it needs no copy."""
    first, last = int(rows[0]), int(rows[-1]) + 1
    return slice(first, last) if last - first == len(rows) else rows


def mask_of_rows(mask_bhij: Tensor | None, rows: slice | Tensor) -> Tensor | None:
    """The rows of a mask, where there is one."""
    return None if mask_bhij is None else mask_bhij[:, :, rows]


def _attend_stage(
    q_bhid: Tensor, i: Tensor, keys: Sequence[SpanKeys], terms: LayerTerms, mask_bhij: Tensor | None
) -> Tensor:
    """The output of rows that share a table. Their copy of the keys is dropped at once: layers do not share it, and
    the backward pass computes it again."""
    visible = keys_up_to(keys, i)

    def output() -> Tensor:
        with share_results(SharedLayout()):
            return _attend_rows(q_bhid, i, visible, terms, mask_bhij)

    if not torch.is_grad_enabled():
        return output()
    out_bhid: Tensor = checkpoint(output, use_reentrant=False, preserve_rng_state=False)
    return out_bhid


def explain_sequences(
    q_bhid: Tensor, i: Tensor, keys: Sequence[SpanKeys], terms: LayerTerms, mask_bhij: Tensor | None = None
) -> str:
    """Which backend `attend_sequences` would use, and why."""
    rows_of_tables = stages(terms.extension, terms.facts, i)
    if len(rows_of_tables) > MOST_TABLES:
        rows = rows_of_tables[-1]
        last = explain_sequences(q_bhid[:, :, rows], i[rows], keys_up_to(keys, i[rows]), terms, mask_bhij)
        return f"{len(rows_of_tables)} tables, one at a time, the last one by {last}"
    segments = _segments(i, keys, terms)
    choice = choose(problem_of(q_bhid, i, keys, segments, terms, masked=mask_bhij is not None))
    return f"{choice.backend.name}: {choice.why}"


def zeros_of(q_bhid: Tensor, k_bgjd: Tensor, v_bgjd: Tensor, learned: Iterable[Tensor] = ()) -> Tensor:
    """The output where no query sees a key: zeros, whose gradients are zeros too."""
    nothing = sum(x.reshape(-1)[:0].sum() for x in (q_bhid, k_bgjd, v_bgjd, *learned))
    return v_bgjd.new_zeros(*q_bhid.shape[:3], v_bgjd.shape[-1]) + nothing


def keys_up_to(keys: Sequence[SpanKeys], i: Tensor) -> list[SpanKeys]:
    """The keys up to the last query. Spans that shared their keys still share them."""
    cut = {id(span_keys): span_keys.up_to(span_keys.until(i).max()) for span_keys in keys}
    return [cut[id(span_keys)] for span_keys in keys]


def _attend_rows(
    q_bhid: Tensor, i: Tensor, keys: Sequence[SpanKeys], terms: LayerTerms, mask_bhij: Tensor | None
) -> Tensor:
    """All rows together."""
    segments = _segments(i, keys, terms)
    if not segments:
        return zeros_of(q_bhid, keys[0].k_bgjd, keys[0].v_bgjd)
    problem = problem_of(q_bhid, i, keys, segments, terms, masked=mask_bhij is not None)
    choice = choose(problem)
    if choice.double:
        q_bhid, keys = q_bhid.double(), _to_float64(keys)
    return choice.backend.run(AttentionInputs(problem, terms, q_bhid, i.to(q_bhid.device), keys, mask_bhij))


def _segments(i: Tensor, keys: Sequence[SpanKeys], terms: LayerTerms) -> list[Segment]:
    """The segments of the queries numbered i, once for all layers of a pass that share them."""
    numbers = [span_keys.numbers for span_keys in keys]
    pairs, until = keys[0].pair_positions, None if keys[0].last_seen is None else keys[0].until(i)

    def compute() -> list[Segment]:
        return segments_of(terms.extension, terms.facts, i, numbers, pairs, until)

    of_images = tuple(x for x in (pairs, until) if x is not None)
    spec = (*terms[:2], pairs is None, until is None)
    return compute_once(
        "segments", spec, (i, *numbers, *of_images), compute, len(i) if pairs is None else pairs.numel()
    )


def problem_of(
    q_bhid: Tensor,
    i: Tensor,
    keys: Sequence[SpanKeys],
    segments: Sequence[Segment],
    terms: LayerTerms,
    masked: bool = False,
) -> Problem:
    """What these segments ask of a backend."""
    groups = [terms.weights.get(spec.name, {}) for spec in terms.extension.biases]
    learning = torch.is_grad_enabled() and any(value.requires_grad for group in groups for value in group.values())
    sizes = (q_bhid.shape[2], len(keys[0].numbers), q_bhid.shape[-1], keys[0].v_bgjd.shape[-1])
    one_key_set = not any(span_keys.rotated or span_keys.k_bgjd is not keys[0].k_bgjd for span_keys in keys)
    problem = Problem(terms.extension, segments, *sizes, q_bhid.dtype, q_bhid.device, learning, one_key_set)
    problem = problem._replace(row_biases=row_biases(i, segments, terms) if terms.extension.biases else None)
    return problem._replace(softcap=terms.facts.softcap, masked=masked, weighted=terms.facts.weighted)


def row_biases(i: Tensor, segments: Sequence[Segment], terms: LayerTerms) -> list[Tensor] | None:
    """The bias of each segment's rows, where all keys of a row have one and nothing learned gives it."""
    if any(terms.weights.get(spec.name) for spec in terms.extension.biases):
        return None
    biases = [terms.bias_of_row(segment, i) for segment in segments]
    shared = [bias for bias in biases if bias is not None]
    return shared if len(shared) == len(biases) else None


def _to_float64(keys: Sequence[SpanKeys]) -> list[SpanKeys]:
    """The same keys in float64. Spans that shared their keys still share them."""
    doubles = {id(span_keys.k_bgjd): span_keys.k_bgjd.double() for span_keys in keys}
    return [span_keys._replace(k_bgjd=doubles[id(span_keys.k_bgjd)]) for span_keys in keys]
