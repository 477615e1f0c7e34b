"""Attention of some queries of one text to the keys that each span reads, by the way that the chooser names.

Legend: b batch, h query head, g key head, i query, j key, d head dimension.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ropewalk.attention.backends.bias_diagonals import bias_diagonals, diagonal
from ropewalk.attention.backends.choose import Choice, choose
from ropewalk.attention.backends.dense import dense
from ropewalk.attention.backends.flash import flash
from ropewalk.attention.backends.flex import flex
from ropewalk.attention.backends.triton.launch import plan_for, triton_attention
from ropewalk.attention.layout.segments import Segment, SpanKeys, segments, stages
from ropewalk.attention.layout.shared import SharedLayout, once, sharing
from ropewalk.attention.problem import Problem
from ropewalk.attention.rotation.precision import compute_dtype
from ropewalk.attention.rotation.rotated_copies import rotated_copies
from ropewalk.extension import Extension
from ropewalk.facts import MODEL, SINKS, Facts
from ropewalk.spec import Weights

AT_ONCE = 8  # tables: each has a copy of the keys


class LayerTerms(NamedTuple):
    """What attention is computed under."""

    extension: Extension
    facts: Facts
    weights: Mapping[str, Weights]

    @property
    def sink_h(self) -> Tensor | None:
        """The logits of the model's sinks, where it has any."""
        return self.weights.get(MODEL, {}).get(SINKS)

    def bias(self, shown: Tensor, query: Tensor) -> Tensor:
        """The sum of the biases where query sees a key at the distance shown, a head dimension first, in float64."""
        specs = self.extension.biases
        each = [spec.bias(shown, query, self.facts, self.weights.get(spec.name, {})) for spec in specs]
        return torch.stack(each).sum(0)

    def scale(self, i: Tensor) -> Tensor:
        """The product of the scales, [heads or 1, queries], float64."""
        scale_hi = torch.ones_like(i, dtype=torch.float64)[None]
        for spec in self.extension.scales:
            scale_hi = scale_hi * spec.scale(i, self.facts, self.weights.get(spec.name, {}))
        return scale_hi

    def scaled(self, q_bhid: Tensor, i: Tensor) -> Tensor:
        """The queries numbered i with the scales folded in."""
        working = compute_dtype(q_bhid.dtype)
        for spec in self.extension.scales:
            scale_hi = spec.scale(i, self.facts, self.weights.get(spec.name, {}))
            q_bhid = (q_bhid * scale_hi[:, :, None].to(working)).to(q_bhid.dtype)
        return q_bhid


def attend_sequences(q_bhid: Tensor, i: Tensor, keys: Sequence[SpanKeys], terms: LayerTerms) -> Tensor:
    """The answers to the queries numbered i over each span's keys; where tables are many, one table at a time."""
    rows = stages(terms.extension, terms.facts, i)
    if len(rows) <= AT_ONCE:
        return _attend_rows(q_bhid, i, keys, terms)
    queries = torch.split(q_bhid, [own.stop - own.start for own in rows], 2)
    return torch.cat([_attend_stage(q, i[own], keys, terms) for q, own in zip(queries, rows, strict=True)], 2)


def _attend_stage(q_bhid: Tensor, i: Tensor, keys: Sequence[SpanKeys], terms: LayerTerms) -> Tensor:
    """The answers of rows that share a table. No copy of the keys outlives them: layers share none, and the way back
    makes it again."""
    seen = keys_until(keys, i)

    def answers() -> Tensor:
        with sharing(SharedLayout()):
            return _attend_rows(q_bhid, i, seen, terms)

    if not torch.is_grad_enabled():
        return answers()
    answer: Tensor = checkpoint(answers, use_reentrant=False, preserve_rng_state=False)
    return answer


def explain_sequences(q_bhid: Tensor, i: Tensor, keys: Sequence[SpanKeys], terms: LayerTerms) -> str:
    """Which way `attend_sequences` would take, and why."""
    rows = stages(terms.extension, terms.facts, i)
    if len(rows) > AT_ONCE:
        own = rows[-1]
        last = explain_sequences(q_bhid[:, :, own], i[own], keys_until(keys, i[own]), terms)
        return f"{len(rows)} tables, one at a time, the last one by {last}"
    found = segments(terms.extension, terms.facts, i, [own.numbers for own in keys])
    backend, why, _ = choice_of(q_bhid, keys, found, terms)
    return f"{backend}: {why}"


def keys_until(keys: Sequence[SpanKeys], i: Tensor) -> list[SpanKeys]:
    """The keys up to the last query, spans that share theirs sharing them still."""
    cut = {id(own): own.until(i[-1]) for own in keys}
    return [cut[id(own)] for own in keys]


def _attend_rows(q_bhid: Tensor, i: Tensor, keys: Sequence[SpanKeys], terms: LayerTerms) -> Tensor:
    """All rows together."""
    numbers = [own.numbers for own in keys]
    found = once(
        "strands", terms[:2], (i, *numbers), lambda: segments(terms.extension, terms.facts, i, numbers), len(i)
    )
    if not found:
        return q_bhid.new_zeros(*q_bhid.shape[:3], keys[0].v_bgjd.shape[-1])
    choice = choice_of(q_bhid, keys, found, terms)
    if choice.double:
        q_bhid, keys = q_bhid.double(), _doubled(keys)
    i = i.to(q_bhid.device)
    line = (lambda far: terms.bias(far, far)) if terms.extension.biases else None
    sink_h = None if terms.sink_h is None else terms.sink_h.to(q_bhid.device, compute_dtype(q_bhid.dtype))
    if choice.backend == "triton":
        k_bgjd, v_bgjd, *_ = keys[0]
        plan = plan_for(found, q_bhid, v_bgjd, terms.facts.interleaved)
        return triton_attention(q_bhid, k_bgjd, v_bgjd, plan, terms.scale(i), line, sink_h)
    turned = rotated_copies(terms.scaled(q_bhid, i), keys, found, terms.facts.interleaved)
    if choice.backend == "flash":
        return flash(turned, sink_h)
    if choice.backend == "toeplitz" and line:
        own = [diagonal(strand, q_bhid.shape[2], len(strand.k_at)) for strand in found]
        copies = [(turned.q[job.q], turned.k[job.k]) for job in turned.jobs]
        return bias_diagonals(copies, turned.v[0], [each for each in own if each], line, sink_h)
    if choice.backend == "flex":
        return flex(turned, found, line, terms.facts.softcap, sink_h)

    def bias_of(shown_ij: Tensor, rows: slice) -> Tensor:
        return terms.bias(shown_ij, i[rows, None].expand_as(shown_ij))

    return dense(turned, found, bias_of if terms.extension.biases else None, terms.facts.softcap, sink_h)


def choice_of(q_bhid: Tensor, keys: Sequence[SpanKeys], found: Sequence[Segment], terms: LayerTerms) -> Choice:
    """The way these strands go; what learned biases want gradients for has a say in it."""
    groups = [terms.weights.get(spec.name, {}) for spec in terms.extension.biases]
    learning = torch.is_grad_enabled() and any(value.requires_grad for group in groups for value in group.values())
    sizes = (q_bhid.shape[2], len(keys[0].numbers), q_bhid.shape[-1], keys[0].v_bgjd.shape[-1])
    fresh = not any(own.turned for own in keys) and all(own.k_bgjd is keys[0].k_bgjd for own in keys)
    case = Problem(terms.extension, found, *sizes, q_bhid.dtype, q_bhid.device, learning, fresh)
    return choose(case._replace(softcap=terms.facts.softcap))


def _doubled(keys: Sequence[SpanKeys]) -> list[SpanKeys]:
    """The same in float64, spans that share their keys sharing them still."""
    doubles = {id(own.k_bgjd): own.k_bgjd.double() for own in keys}
    return [own._replace(k_bgjd=doubles[id(own.k_bgjd)]) for own in keys]
