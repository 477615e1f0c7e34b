"""What all layers under one extension share while texts are read chunk by chunk: buffers and rotations.

A key's position depends on its number alone, so it is rotated once, when it is read. Where the table changes with the
row, or theta decays, unrotated keys are stored as well, and rotated again when a stage begins.

Legend: b batch (1 where all rows are alike), h query head, g key head, r query heads of one key head, n token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ropewalk.attention.cache.kv_buffers import FullBuffer, KVBuffer, PrefixBuffer, RingBuffer
from ropewalk.attention.layout.retention import FAR_POSITION, Retention, span_retention
from ropewalk.attention.layout.sequences import compute_once
from ropewalk.attention.problem import layer_terms
from ropewalk.attention.rotation.rotate import Rotation, compute_dtype, rotation_at
from ropewalk.errors import InvalidValue
from ropewalk.extension.extension import Extension
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


class Session:
    """Texts that are read chunk by chunk under one extension; all layers of a model share a session.

    `begins` is the number of each row's first token: 0, or -n for a row that begins with n tokens of padding. One entry
    stands for any number of equal rows. `weights` are the learned numbers. Up to `spare` tokens can always be removed
    again (`LayerCache.forget`), even under a reach that drops old keys.

        session = Session(parse("streaming:window=1024"), facts, begins=(0, -3))
        caches = [LayerCache(session) for _ in range(layers)]
    """

    def __init__(
        self,
        extension: Extension,
        facts: Facts,
        *,
        begins: Sequence[int] = (0,),
        layer: int | None = None,
        weights: Mapping[str, Weights] | None = None,
        spare: int = 0,
    ) -> None:
        self.terms = layer_terms(extension, facts, layer, weights)
        facts, numbering = self.terms.facts, self.terms.extension.positions_or_sequential
        if not isinstance(numbering, Sequential):
            raise InvalidValue("positions", "sequential with a cache", numbering, remedy="use others in training only")
        self.begins = (begins[0],) if len(set(begins)) == 1 else tuple(begins)
        self.rows = len(begins)
        self.first = torch.tensor(self.begins)
        self.spans = self.terms.extension.reach_or_causal.spans()
        self.turns = self.terms.extension.turns(facts)
        self.buffers, self.stored, self.buffer_of = _buffers(self.spans, self.turns, self.begins, spare)
        self.spare = spare
        self._tables: dict[int, Table] = {}
        self._of_rows: dict[tuple[int, ...], Session] = {}
        first = self.table(1)
        self.decays = bool(first.log_decay.any())
        self._decay_period = max(1, int(1 / float(first.log_decay.abs().max()))) if self.decays else 0
        self.latest: tuple[object, Any] | None = None  # the step of the next token, for all layers
        self.has_stages = (
            self.decays or len(self.terms.extension.frequencies_or_rope.stages(facts, 4 * facts.trained_len)) > 1
        )

    def of_rows(self, rows: Sequence[int]) -> Session:
        """The session of these rows, the same one for all layers."""
        if len(self.begins) == 1:
            return self
        begins = tuple(self.begins[row % len(self.begins)] for row in rows)
        if begins not in self._of_rows:
            extension, facts, weights = self.terms
            self._of_rows[begins] = Session(extension, facts, begins=begins, weights=weights, spare=self.spare)
        return self._of_rows[begins]

    def numbers(self, slots: Tensor) -> Tensor:
        """The numbers of these slots in every row, [b, n]."""
        return self.first[:, None] + slots

    def table(self, start: int) -> Table:
        """The table of rows from this length on."""
        if start not in self._tables:
            self._tables[start] = self.terms.extension.frequencies_or_rope.table(self.terms.facts, start)
        return self._tables[start]

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


def key_positions(spans: Sequence[Span], turns: Tensor) -> list[bytes]:
    """For each span what is equal where keys have equal positions."""
    return [span.k_rotated(PROBED, turns).double().numpy().tobytes() for span in spans]


def _buffers(
    spans: Sequence[Span], turns: Tensor, begins: Sequence[int], spare: int
) -> tuple[list[KVBuffer], list[Span], list[int]]:
    """The buffers, a span that each is for, and the buffer of each span. Spans with equal key positions share one."""
    needs = [span_retention(span) for span in spans]
    positions = key_positions(spans, turns)
    full = {at for at, need in zip(positions, needs, strict=True) if need.last is None}
    keys = [(at, at in full or bool(need.last)) for at, need in zip(positions, needs, strict=True)]
    total: dict[tuple[bytes, bool], Retention] = {}
    for key, need in zip(keys, needs, strict=True):
        total[key] = total.get(key, Retention()) | need
    stored = [spans[keys.index(key)] for key in total]
    return [_buffer(need, begins, spare) for need in total.values()], stored, [list(total).index(key) for key in keys]


def _buffer(need: Retention, begins: Sequence[int], spare: int) -> KVBuffer:
    if need.last is None:
        return FullBuffer()
    return RingBuffer(need.last, spare) if need.last else PrefixBuffer(need.first, begins)
