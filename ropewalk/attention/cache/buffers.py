"""What all layers under one extension share while texts are read chunk by chunk: buffers and rotations.

A buffer keeps all keys, a ring of them for a window, or the first ones for sinks.

Legend: b batch (1 where all rows are alike), g key head, n token, d head dimension.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from ropewalk.attention.layout.retention import FAR_POSITION, Retention, span_retention
from ropewalk.attention.layout.sequences import compute_once
from ropewalk.attention.problem import LayerTerms, layer_terms
from ropewalk.attention.rotation.rotate import Rotation, compute_dtype, rotation_at
from ropewalk.errors import InvalidValue
from ropewalk.extension.extension import Extension
from ropewalk.extension.inputs import require_written
from ropewalk.methods.facts import Facts
from ropewalk.methods.frequencies import Table
from ropewalk.methods.positions import Sequential
from ropewalk.methods.reach import Span
from ropewalk.methods.spec import Weights

CPU = torch.device("cpu")
# Positions at which spans are compared.
PROBED = torch.cat([torch.arange(4096), torch.arange(FAR_POSITION, FAR_POSITION + 4096)])

# For each row: the length from which its table is valid, and the position that a decay counts from.
Stage = tuple[tuple[int, int], ...]


class StoredKeys:
    """How past keys are stored under one extension, in a cache and in pages alike.

    A key's position depends on its number alone, so it is rotated once, when it is written: one copy for each different
    position that spans give it, which is read in place. Where the table changes with the row, or theta decays,
    unrotated keys are stored as well, and copies are rotated again from them when a stage begins.
    """

    def __init__(self, terms: LayerTerms) -> None:
        self.terms, self.spans = terms, terms.extension.reach_or_causal.spans()
        self.turns = terms.extension.turns(terms.facts)
        self._tables: dict[int, Table] = {}
        self.decays = bool(self.table(1).log_decay.any())
        stages = terms.extension.frequencies_or_rope.stages(terms.facts, 4 * terms.facts.trained_len)
        self.has_stages = self.decays or len(stages) > 1

    def table(self, start: int) -> Table:
        """The table of rows from this length on."""
        if start not in self._tables:
            self._tables[start] = self.terms.extension.frequencies_or_rope.table(self.terms.facts, start)
        return self._tables[start]

    def copies(self) -> list[bytes]:
        """For each span what is equal where spans read the same copy: its keys' positions, if anything rotates."""
        if not self.has_stages and not self.table(1).inv_freq.any():
            return [b""] * len(self.spans)
        return [span.k_rotated(PROBED, self.turns).double().numpy().tobytes() for span in self.spans]


class CacheState(StoredKeys):
    """Texts that are read chunk by chunk under one extension; all layers of a model share a state.

    `begins` is the number of each row's first token: 0, or -n for a row that begins with n tokens of padding. One entry
    stands for any number of equal rows. `weights` are the learned numbers. Up to `spare` tokens can always be removed
    again (`LayerCache.forget`), even under a reach that drops old keys.

        state = CacheState(parse("streaming:window=1024"), facts, begins=(0, -3))
        caches = [LayerCache(state) for _ in range(layers)]
    """

    def __init__(
        self,
        extension: Extension,
        facts: Facts,
        *,
        begins: Sequence[int] = (0,),
        weights: Mapping[str, Weights] | None = None,
        spare: int = 0,
    ) -> None:
        self._begin(layer_terms(extension, facts, weights), begins, spare)

    def _begin(self, terms: LayerTerms, begins: Sequence[int], spare: int) -> None:
        super().__init__(terms)
        numbering = self.terms.extension.positions_or_sequential
        if not isinstance(numbering, Sequential):
            raise InvalidValue("positions", "sequential with a cache", numbering, remedy="use others in training only")
        self.phases = tuple(phase.extension.reach_or_causal.spans() for phase in self.terms.phases)
        self.spans = tuple(span for spans in self.phases for span in spans)
        self.begins = (begins[0],) if len(set(begins)) == 1 else tuple(begins)
        self.rows, self.spare = len(begins), spare
        self.first = torch.tensor(self.begins)
        self.buffers, self.stored, self.buffer_of = self._buffers()
        self._of_rows: dict[tuple[int, ...], CacheState] = {}
        self._decay_period = max(1, int(1 / float(self.table(1).log_decay.abs().max()))) if self.decays else 0
        self.latest: tuple[object, Any] | None = None  # the step of the next token, for all layers
        split = terms.parts() if terms.extension.heads else []
        # The states of the heads in which the same is in force, where heads differ.
        self.parts = [(part, self._of_terms(part.terms)) for part in split]

    def _of_terms(self, terms: LayerTerms) -> CacheState:
        """The same texts, under other terms."""
        state = CacheState.__new__(CacheState)
        state._begin(terms, self.begins * (self.rows // len(self.begins)), self.spare)
        return state

    def of_rows(self, rows: Sequence[int]) -> CacheState:
        """The state of these rows, the same one for all layers."""
        if len(self.begins) == 1:
            return self
        begins = tuple(self.begins[row % len(self.begins)] for row in rows)
        if begins not in self._of_rows:
            state = self._of_rows[begins] = CacheState.__new__(CacheState)
            state._begin(self.terms, begins, self.spare)
        return self._of_rows[begins]

    def spans_of(self, phase: int) -> range:
        """Which of `spans` are those of tokens that are read (0), or of those that the model writes (1)."""
        first = sum(len(spans) for spans in self.phases[:phase])
        return range(first, first + len(self.phases[phase]))

    @property
    def members(self) -> list[CacheState]:
        """Itself, or where heads differ the state of each part of them."""
        return [state for _, state in self.parts] or [self]

    def numbers(self, slots: Tensor) -> Tensor:
        """The numbers of these slots in every row, [b, n]."""
        return self.first[:, None] + slots

    def stage(self, i: Sequence[int]) -> Stage | None:
        """The stage of queries with these numbers, one for each row; nothing where it never changes."""
        if not self.has_stages:
            return None
        starts = [self.terms.extension.frequencies_or_rope.stages(self.terms.facts, number + 1)[-1] for number in i]
        origins = [number // self._decay_period * self._decay_period if self.decays else 0 for number in i]
        return tuple(zip(starts, origins, strict=True))

    def rotation(
        self, at_bn: Tensor, stage: Stage | None, dtype: torch.dtype, *, keys: bool, device: torch.device = CPU
    ) -> Rotation | None:
        """The rotation of queries or keys at these positions; nothing where it would change nothing."""
        rows = stage or ((1, 0),) * len(at_bn)
        tables = [self.table(start) for start, _ in rows]
        if not self.decays and not any(table.inv_freq.any() for table in tables):
            return None

        def computed() -> Rotation:
            rotations = []
            for at, table, (_, origin) in zip(at_bn, tables, rows, strict=True):
                rotations.append(rotation_at(at, table, origin - at if keys else at - origin))
            cos, sin = (torch.stack(rows)[:, None] for rows in zip(*rotations, strict=True))
            return Rotation(*(part.to(device, compute_dtype(dtype)) for part in (cos, sin)))

        spec = (self, stage, dtype, device, keys)  # all layers of a pass rotate by the same angles
        return compute_once(
            "rotation through a cache", spec, (at_bn,), computed, 2 * at_bn.numel() * len(tables[0].inv_freq)
        )

    def told_apart(self, written_bn: Tensor | None, k_bgjd: Tensor) -> Tensor | None:
        """Which of the new tokens the model wrote, checked, if the reach tells them apart."""
        if written_bn is None:
            return None
        require_written(written_bn, k_bgjd)
        return None if len(self.phases) == 1 else written_bn.cpu()

    def carries(self, i: Tensor) -> bool:
        """Every row has a token; and with a decay, which counts from the query, the query is at its true position."""
        if int(i.min()) < 0:
            return False
        return not self.decays or all(bool((span.q_at(i) == i).all()) for span in self.spans)

    def rows_alike(self, batch: int, written_bn: Tensor | None) -> list[tuple[slice | list[int], int, Tensor | None]]:
        """Rows that begin with the same number, and of whose new tokens the model wrote the same."""
        if written_bn is None and len(self.begins) == 1:
            return [(slice(None), self.begins[0], None)]
        begins = self.begins * (batch if len(self.begins) == 1 else 1)
        kinds = [None] * batch if written_bn is None else list(written_bn)
        groups: dict[tuple[int, bytes], list[int]] = {}
        for row, (begin, kind) in enumerate(zip(begins, kinds, strict=True)):
            groups.setdefault((begin, b"" if kind is None else kind.numpy().tobytes()), []).append(row)
        return [
            (slice(None) if len(groups) == 1 else rows, begins[rows[0]], kinds[rows[0]]) for rows in groups.values()
        ]

    def _buffers(self) -> tuple[list[KVBuffer], list[Span], list[int]]:
        """The buffers, a span that each is for, and the buffer of each span. Spans of one copy of keys share one."""
        needs, copies = [span_retention(span) for span in self.spans], self.copies()
        full = {copy for copy, need in zip(copies, needs, strict=True) if need.last is None}
        keys = [(copy, copy in full or bool(need.last)) for copy, need in zip(copies, needs, strict=True)]
        total: dict[tuple[bytes, bool], Retention] = {}
        for key, need in zip(keys, needs, strict=True):
            total[key] = total.get(key, Retention()) | need
        stored = [self.spans[keys.index(key)] for key in total]
        buffers = [_buffer(need, self.begins, self.spare) for need in total.values()]
        return buffers, stored, [list(total).index(key) for key in keys]


def phase_of(written_bn: Tensor | None) -> int | None:
    """0 where all tokens are read, 1 where the model wrote all; None where they differ."""
    if written_bn is None or not written_bn.any():
        return 0
    return 1 if written_bn.all() else None


def _buffer(need: Retention, begins: Sequence[int], spare: int) -> KVBuffer:
    if need.last is None:
        return FullBuffer()
    return RingBuffer(need.last, spare) if need.last else PrefixBuffer(need.first, begins)


# Where a layer cache stores the vectors of past tokens: all of them, the last ones, or the first ones.
#
# A buffer has lanes: rotated keys, their values, and other vectors of a token. Slots count the tokens since the cache
# began, padding included; numbers count within each row's sequence. A buffer only computes indices. The tensors belong
# to the cache, one set for each layer.


GROWTH = 1.25  # how much larger a full buffer becomes
LEAST_ROOM = 256  # tokens of a full buffer, at least
WIDE_RING = 4096  # tokens; a ring of no more is made whole at once

Lanes = list[Tensor]


class BufferUpdate(NamedTuple):
    """The lanes after new tokens; and all that these may see, in order, from slot (or number) `first` on."""

    lanes: Lanes
    first: int
    ordered: Lanes


class KVBuffer(ABC):
    """Where a layer cache stores the vectors of past tokens. `count` is the number of slots before the call."""

    by_number: ClassVar[bool] = False  # whether indices are each row's numbers rather than slots

    def takes(self, count: int) -> bool:
        """Whether the token at this slot is stored, in any row."""
        return True

    def can_forget(self, furthest: int, count: int) -> bool:
        """Whether the tokens from `count` on can be removed after all up to `furthest` were read."""
        return True

    @abstractmethod
    def extend(self, lanes: Lanes, new: Lanes, count: int) -> BufferUpdate:
        """Store tokens."""

    def push(self, lanes: Lanes, new: Lanes, count: int) -> Lanes:
        """Store one token, in place."""
        return self.extend(lanes, new, count).lanes

    def held(self, count: int) -> slice:
        """The indices in use."""
        return slice(0, count)

    def where(self, start: int, stop: int) -> list[slice]:
        """The indices of the slots (or numbers) from start to stop, in any order."""
        return [slice(start, stop)]

    def slots(self, indices: slice, newest: int) -> Tensor:
        """The slots (or numbers) at these indices once `newest` is the last slot."""
        return torch.arange(indices.start, indices.stop)


@dataclass(frozen=True)
class FullBuffer(KVBuffer):
    """All tokens, in order, with room to grow."""

    def extend(self, lanes: Lanes, new: Lanes, count: int) -> BufferUpdate:
        """Append the tokens; all of them are visible, in order."""
        end = count + new[0].shape[2]
        lanes = _make_room(lanes, new, count, end)
        for lane, part in zip(lanes, new, strict=True):
            lane[:, :, count:end] = part
        return BufferUpdate(lanes, 0, [lane[:, :, :end] for lane in lanes])


def _make_room(lanes: Lanes, new: Lanes, count: int, end: int, most: int | None = None) -> Lanes:
    """The same lanes with room up to `end`, and for some more tokens, but no more than `most`."""
    if lanes and end <= lanes[0].shape[2]:
        return lanes
    room = max(end, LEAST_ROOM, int(count * GROWTH))
    wider = _lanes_like(new, room if most is None else min(room, most))
    for lane, old in zip(wider, lanes, strict=False):
        lane[:, :, :count] = old[:, :, :count]
    return wider


def _lanes_like(new: Lanes, room: int) -> Lanes:
    """Lanes of this length, that may be written in any mode: what begins in inference mode may go on outside."""
    with torch.inference_mode(False):
        return [part.new_empty(*part.shape[:2], room, part.shape[3]) for part in new]


@dataclass(frozen=True)
class RingBuffer(KVBuffer):
    """The last `size` tokens; each new one overwrites the oldest, since softmax does not depend on their order.

    With `spare` more slots, up to that many tokens can be removed at any time.
    """

    size: int
    spare: int = 0

    @property
    def room(self) -> int:
        """The length of the ring."""
        return self.size + self.spare

    def can_forget(self, furthest: int, count: int) -> bool:
        """Tokens can be removed while those that become visible again are not overwritten."""
        return furthest - self.room <= max(0, count - self.size)

    def extend(self, lanes: Lanes, new: Lanes, count: int) -> BufferUpdate:
        """The old tokens and the new ones, in order; and the ring with the last of them."""
        first, end = max(0, count - self.size), count + new[0].shape[2]
        lanes = self._widened(lanes, new, count)
        runs = self._in_order(first, count)
        ordered = [
            torch.cat([*(lane[:, :, run] for run in runs), part], 2) if runs else part
            for lane, part in zip(lanes, new, strict=True)
        ]
        newest = torch.arange(max(count, end - self.room), end)
        for lane, part in zip(lanes, new, strict=True):
            lane[:, :, newest % self.room] = part[:, :, newest - count]
        return BufferUpdate(lanes, first, ordered)

    def push(self, lanes: Lanes, new: Lanes, count: int) -> Lanes:
        """Overwrite the oldest token."""
        lanes = self._widened(lanes, new, count)
        index = count % self.room
        for lane, part in zip(lanes, new, strict=True):
            lane[:, :, index : index + 1] = part
        return lanes

    def _widened(self, lanes: Lanes, new: Lanes, count: int) -> Lanes:
        """Room for new tokens: a wide ring grows with a text until it is full."""
        end = self.room if self.room <= WIDE_RING else min(count + new[0].shape[2], self.room)
        return _make_room(lanes, new, min(count, self.room), end, self.room)

    def held(self, count: int) -> slice:
        """The indices from 0 on; all of them once the ring is full."""
        return slice(0, min(count, self.room))

    def where(self, start: int, stop: int) -> list[slice]:
        """A full ring in its order in memory."""
        return [slice(0, self.room)] if stop - start == self.room else self._in_order(start, stop)

    def _in_order(self, start: int, stop: int) -> list[slice]:
        """One run of indices, or two across the end of the ring."""
        first, end = start % self.room, start % self.room + stop - start
        if end <= self.room:
            return [slice(first, end)] if end > first else []
        return [slice(first, self.room), slice(0, end - self.room)]

    def slots(self, indices: slice, newest: int) -> Tensor:
        """The latest slot at each index."""
        return newest - (newest - torch.arange(indices.start, indices.stop)) % self.room


@dataclass(frozen=True)
class PrefixBuffer(KVBuffer):
    """The tokens numbered below `size`, at the index of their number; `begins` numbers each row's slot 0."""

    size: int
    begins: Sequence[int]
    by_number: ClassVar[bool] = True

    def takes(self, count: int) -> bool:
        """Tokens are stored until every row has `size` of them."""
        return count + min(self.begins) < self.size

    def extend(self, lanes: Lanes, new: Lanes, count: int) -> BufferUpdate:
        """The first tokens of each row."""
        lanes = lanes or [lane.zero_() for lane in _lanes_like(new, self.size)]
        if self.takes(count):
            for row in range(len(new[0])):
                self._extend_row(lanes, new, count, row)
        return BufferUpdate(lanes, 0, lanes)

    def _extend_row(self, lanes: Lanes, new: Lanes, count: int, row: int) -> None:
        number = count + self.begins[row % len(self.begins)]  # of the first new token
        first, stop = max(number, 0), min(number + new[0].shape[2], self.size)
        if first < stop:
            for lane, part in zip(lanes, new, strict=True):
                lane[row, :, first:stop] = part[row, :, first - number : stop - number]

    def held(self, count: int) -> slice:
        """All indices; they hold zeros at first."""
        return slice(0, self.size)
