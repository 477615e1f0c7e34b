"""What a backend is asked to compute: one sequence group under one extension, and the tensors that go with it.

Legend: b batch, h query head, g key head, i query, j key, d head dimension.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from ropewalk.attention.layout.segments import Segment, SpanKeys
from ropewalk.attention.rotation.rotate import RotatedCopies, compute_dtype, rotated_copies
from ropewalk.extension.extension import Extension
from ropewalk.extension.inputs import layer_extension
from ropewalk.methods.biases.bias import Bias
from ropewalk.methods.facts import AFTER_ROTATION, MODEL, SINKS, Facts
from ropewalk.methods.frequencies.frequencies import Frequencies
from ropewalk.methods.scales.scale import Scale
from ropewalk.methods.spec import Weights

# The sum of the biases at these effective distances, [heads, distances], float64
BiasAt = Callable[[Tensor], Tensor]
# The shapes of the learned numbers, by method and by name
Shapes = tuple[tuple[str, tuple[tuple[str, torch.Size], ...]], ...]


class LayerTerms(NamedTuple):
    """The extension of one layer, the facts that it works on, and its learned numbers."""

    extension: Extension
    facts: Facts
    weights: Mapping[str, Weights]
    of_heads: tuple[int, ...] | None = None  # the query heads that these terms are of, where heads differ

    @property
    def sink_h(self) -> Tensor | None:
        """The logits of the model's sinks, if it has sinks."""
        sink_h = self.weights.get(MODEL, {}).get(SINKS)
        return None if sink_h is None else self._of_these(sink_h)

    def parts(self) -> list[PartTerms]:
        """The terms of the heads in which the same is in force; those of all heads where heads do not differ."""
        if not self.extension.heads:
            return [PartTerms(self, slice(None), slice(None))]
        return [
            PartTerms(LayerTerms(extension, self.facts, self.weights, heads), *places)
            for extension, heads, places in _complete_parts(self.extension, self.facts)
        ]

    @property
    def phases(self) -> tuple[LayerTerms, ...]:
        """The terms of tokens that are read, and of those that the model writes, if these differ."""
        return tuple(self._replace(extension=phase) for phase in _complete_phases(self.extension))

    @property
    def heads_here(self) -> Facts:
        """The facts with the heads that these terms are of: the shapes that are computed with."""
        if self.of_heads is None:
            return self.facts
        return _with_heads(self.facts, len(self.of_heads))

    def _of_these(self, x: Tensor) -> Tensor:
        """What methods say of all query heads, of these alone; heads are the first axis, or one stands for all."""
        chosen = self.of_heads is not None and x.shape[0] == self.facts.heads
        return x[list(self.of_heads)] if chosen and self.of_heads else x

    def weighted(self, rotated_q: Tensor) -> Tensor:
        """Rotated queries times the model's own factors, if it has them; dimensions are the last axis."""
        w_d = self.weights.get(MODEL, {}).get(AFTER_ROTATION)
        if w_d is None:
            return rotated_q
        return (rotated_q * w_d.to(rotated_q.device, compute_dtype(rotated_q.dtype))).to(rotated_q.dtype)

    def bias(self, distance: Tensor, query: Tensor) -> Tensor:
        """The sum of the biases for queries that see keys at an effective distance: a head dimension first, float64."""
        specs = self.extension.biases
        distance, query = self._on_device_of_weights(specs, distance, query)
        terms = [spec.bias(distance, query, self.facts, self.weights.get(spec.name, {})) for spec in specs]
        return self._of_these(torch.stack(terms).sum(0))

    def bias_of_row(self, segment: Segment, i: Tensor) -> Tensor | None:
        """The sum of the biases of a segment's rows, [heads, rows], if all keys of a row have one; i is of all rows."""
        keys, rows = len(segment.k_at), i[segment.rows]
        seeing = segment.stop > segment.start
        nearest, furthest = (
            (segment.q_at.double() - segment.k_at[at.clamp(0, keys - 1)]).where(seeing, 0)
            for at in (segment.stop - 1, segment.start)
        )
        if not all(spec.same_between(nearest, furthest, self.facts) for spec in self.extension.biases):
            return None
        return self.bias(nearest, rows)

    def scale(self, i: Tensor) -> Tensor:
        """The product of the scales, [heads or 1, queries, 1 or dimensions], float64."""
        (i,) = self._on_device_of_weights(self.extension.scales, i)
        scale_hid = torch.ones_like(i, dtype=torch.float64)[None, :, None]
        for spec in self.extension.scales:
            scale_hid = scale_hid * self._scale_of(spec, i)
        return scale_hid

    def _scale_of(self, spec: Scale, i: Tensor) -> Tensor:
        """One scale: a factor of all dimensions, or of each where it multiplies only some."""
        scale_hi1 = self._of_these(spec.scale(i, self.facts, self.weights.get(spec.name, {})))[..., None]
        if not spec.of_rotation:
            return scale_hi1
        dims = rotating_dims(self.extension.frequencies_or_rope, self.facts)
        rest = torch.ones_like(scale_hi1).expand(-1, -1, self.facts.head_dim - dims)
        return torch.cat([scale_hi1.expand(-1, -1, dims), rest], -1)

    def _on_device_of_weights(self, specs: Iterable[Bias | Scale], *positions: Tensor) -> Iterator[Tensor]:
        """Positions on the device of what these methods learned. A cache plans on the CPU, wherever the model is."""
        learned = (x for spec in specs for x in self.weights.get(spec.name, {}).values())
        device = next((x.device for x in learned), positions[0].device)
        return (at.to(device) for at in positions)

    def scaled(self, q_bhid: Tensor, i: Tensor) -> Tensor:
        """The queries numbered i, multiplied by the scales."""
        for spec in self.extension.scales:
            q_bhid = (q_bhid * self._scale_of(spec, i).to(compute_dtype(q_bhid.dtype))).to(q_bhid.dtype)
        return q_bhid


def layer_terms(extension: Extension, facts: Facts, weights: Mapping[str, Weights] | None = None) -> LayerTerms:
    """The terms of one layer, checked against the model and against the learned numbers."""
    facts, weights = extension.builds_on(facts), weights or {}
    shapes = tuple((name, tuple((key, x.shape) for key, x in group.items())) for name, group in weights.items())
    return LayerTerms(_complete_extension(extension, facts, shapes), facts, weights)


@lru_cache(maxsize=256)
def _complete_extension(extension: Extension, facts: Facts, shapes: Shapes) -> Extension:
    """The layer's extension with no slot empty. Worked out once, not by every layer in every call."""
    weights = {name: {key: torch.empty(shape, device="meta") for key, shape in group} for name, group in shapes}
    return complete(layer_extension(extension, facts, weights))


def complete(of_layer: Extension) -> Extension:
    """The extension of a layer with what is in force in its empty slots."""
    return replace(
        of_layer,
        frequencies=of_layer.frequencies_or_rope,
        reach=of_layer.reach_or_causal,
        positions=of_layer.positions_or_sequential,
    )


@lru_cache(maxsize=256)
def _with_heads(facts: Facts, heads: int) -> Facts:
    return replace(facts, heads=heads, kv_heads=heads * facts.groups // facts.heads)


Heads = slice | Tensor  # as a slice where they are evenly spaced: it needs no copy


@lru_cache(maxsize=1024)
def _complete_parts(
    extension: Extension, facts: Facts
) -> tuple[tuple[Extension, tuple[int, ...], tuple[Heads, Heads]], ...]:
    """The parts of a layer: what is in force, in which query heads, and where these and their key heads are."""
    parts = [
        (complete(part.extension), part.query_heads(facts), part.key_heads) for part in extension.head_parts(facts)
    ]
    return tuple((one, queries, (_places(queries), _places(keys))) for one, queries, keys in parts)


def _places(heads: Sequence[int]) -> Heads:
    step = heads[1] - heads[0] if len(heads) > 1 else 1
    even = range(heads[0], heads[-1] + 1, step)
    if list(heads) == list(even):
        return slice(even.start, even.stop, step)
    with torch.inference_mode(False):  # it is remembered, and a training may need it next
        return torch.tensor(heads)


def take_heads(x_bhnd: Tensor, heads: Heads) -> Tensor:
    """Some heads of a tensor, [batch, these heads, ...]."""
    return x_bhnd[:, heads] if isinstance(heads, slice) else x_bhnd.index_select(1, heads.to(x_bhnd.device))


@lru_cache(maxsize=1024)
def _complete_phases(extension: Extension) -> tuple[Extension, ...]:
    return tuple(complete(phase) for phase in extension.phases)


class PartTerms(NamedTuple):
    """The terms of some heads of a layer, and where they are among its query heads and its key heads."""

    terms: LayerTerms
    query_heads: Heads
    key_heads: Heads


def join_heads(parts: Sequence[PartTerms], outputs: Sequence[Tensor]) -> Tensor:
    """The outputs of all parts, [batch, heads, ...], heads in the layer's order."""
    if len(outputs) == 1:
        return outputs[0]
    order = _order(tuple(part.terms.of_heads or () for part in parts))
    joined = torch.cat(list(outputs), 1)
    return joined if order is None else joined.index_select(1, order.to(joined.device))


@lru_cache(maxsize=1024)
def _order(heads: tuple[tuple[int, ...], ...]) -> Tensor | None:
    """Where each head of a layer is among those of its parts in a row; nothing where it is there already."""
    with torch.inference_mode(False):  # as above
        order = torch.tensor([head for part in heads for head in part]).argsort()
    return None if bool((order == torch.arange(len(order))).all()) else order


@lru_cache(maxsize=256)
def rotating_dims(theta: Frequencies, facts: Facts) -> int:
    """How many dimensions rotate, the first of a head."""
    return 2 * len(theta.table(facts, 1).inv_freq)


class Problem(NamedTuple):
    """The segments and sizes of a sequence group, on one device and in one type."""

    extension: Extension
    segments: Sequence[Segment]
    queries: int
    keys: int
    head_dim: int
    value_dim: int
    dtype: torch.dtype
    device: torch.device
    learning: bool  # whether numbers that a bias learned need gradients
    one_key_set: bool = True  # whether all spans read the same keys, not rotated yet
    softcap: float | None = None  # the model's cap on its logits
    masked: bool = False  # whether the model adds a mask of its own
    weighted: bool = False  # whether rotated queries have factors of their own
    row_biases: Sequence[Tensor] | None = None  # of each segment, [heads, rows], where all keys of a row have one bias

    @property
    def biases(self) -> str:
        """Their names."""
        return ", ".join(spec.name for spec in self.extension.biases)


class AttentionInputs(NamedTuple):
    """A problem with its tensors. What only some backends need is computed when they ask for it."""

    problem: Problem
    terms: LayerTerms
    q_bhid: Tensor
    i: Tensor  # the queries' numbers, on their device
    keys: Sequence[SpanKeys]  # of each span
    mask_bhij: Tensor | None = None  # what the model adds to the logits of these queries and keys

    @property
    def sink_h(self) -> Tensor | None:
        """The logits of the sinks, where and as they are computed with."""
        sink_h = self.terms.sink_h
        return None if sink_h is None else sink_h.to(self.q_bhid.device, compute_dtype(self.q_bhid.dtype))

    @property
    def bias_at(self) -> BiasAt | None:
        """The biases as a function of the distance alone, if there are any."""
        return self.bias_of_distance if self.terms.extension.biases else None

    def bias_of_distance(self, distance: Tensor) -> Tensor:
        """The biases at these distances, [heads, distances]; right where no bias depends on the query."""
        return self.terms.bias(distance, distance)

    def rotated_copies(self) -> RotatedCopies:
        """Scaled and rotated queries, rotated keys, and the values."""
        q_bhid = self.terms.scaled(self.q_bhid, self.i)
        copies = rotated_copies(q_bhid, self.keys, self.problem.segments, self.terms.facts.interleaved)
        return copies._replace(q=[self.terms.weighted(rotated_q) for rotated_q in copies.q])
