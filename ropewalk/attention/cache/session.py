"""What all layers under one extension share while texts are read piece by piece: shelves, turns, who sees what.

A key's place depends on its number alone, so it is turned once, when it comes, and stays right for good. Where the
table changes with the row, or theta decays, keys are kept as they came as well, and turned anew when a stage begins.

Legend: b batch (1 where all rows are alike), h query head, g key head, r query heads of one key head, n token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ropewalk.attention.cache.kv_buffers import FullBuffer, KVBuffer, PrefixBuffer, RingBuffer
from ropewalk.attention.dispatch import LayerTerms
from ropewalk.attention.layout.retention import FAR, Retention, span_retention
from ropewalk.attention.rotation.precision import compute_dtype
from ropewalk.attention.rotation.rotate import Rotation, rotation_at
from ropewalk.errors import InvalidValue
from ropewalk.extension import Extension
from ropewalk.facts import Facts
from ropewalk.frequencies import Table
from ropewalk.inputs import in_force
from ropewalk.positions import Sequential
from ropewalk.reach import Span
from ropewalk.reach.signature import At
from ropewalk.spec import Weights

PROBED = torch.cat([torch.arange(4096), torch.arange(FAR, FAR + 4096)])  # where two ways to place keys would differ

# Of each row: the text's length at which its table began to hold, and the place that a decay counts from.
Stage = tuple[tuple[int, int], ...]


class Session:
    """Texts being read under one extension; `begins` numbers each row's first slot, below 0 where it is padding.

    Up to `spare` tokens can be taken back whatever the reach forgets.
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
        facts = extension.ground(facts)
        self.terms = LayerTerms(in_force(extension, facts, layer, weights or {}), facts, weights or {})
        if not isinstance(self.terms.extension.numbering, Sequential):
            remedy = "number tokens at random in training only"
            raise InvalidValue(
                "positions", "sequential while reading on", self.terms.extension.numbering, remedy=remedy
            )
        self.begins = (begins[0],) if len(set(begins)) == 1 else tuple(begins)
        self.rows = len(begins)
        self.first = torch.tensor(self.begins)
        self.spans = self.terms.extension.spans.spans()
        self.shelves, self.k_at, self.shelf_of = _arranged(self.spans, self.begins, spare)
        self.spare = spare
        self._tables: dict[int, Table] = {}
        self._others: dict[tuple[int, ...], Session] = {}
        first = self.table(1)
        self.decays = bool(first.log_decay.any())
        self._patience = max(1, int(1 / float(first.log_decay.abs().max()))) if self.decays else 0
        self.latest: tuple[object, Any] | None = None  # the step that all layers are about to take
        self.drifts = self.decays or len(self.terms.extension.theta.stages(facts, 4 * facts.trained_len)) > 1

    def of_rows(self, rows: Sequence[int]) -> Session:
        """The session of these rows, the same for all layers that ask."""
        if len(self.begins) == 1:
            return self
        begins = tuple(self.begins[row % len(self.begins)] for row in rows)
        if begins not in self._others:
            extension, facts, weights = self.terms
            self._others[begins] = Session(extension, facts, begins=begins, weights=weights, spare=self.spare)
        return self._others[begins]

    def numbers(self, slots: Tensor) -> Tensor:
        """The numbers of these slots in every row, [b, n]."""
        return self.first[:, None] + slots

    def table(self, start: int) -> Table:
        """The table of rows from this length on."""
        if start not in self._tables:
            self._tables[start] = self.terms.extension.theta.table(self.terms.facts, start)
        return self._tables[start]

    def stage(self, i: Sequence[int]) -> Stage | None:
        """The stage of queries with these numbers, one a row; nothing where it never changes."""
        if not self.drifts:
            return None
        starts = [self.terms.extension.theta.stages(self.terms.facts, number + 1)[-1] for number in i]
        origins = [number // self._patience * self._patience if self.decays else 0 for number in i]
        return tuple(zip(starts, origins, strict=True))

    def turn(self, at_bn: Tensor, stage: Stage | None, dtype: torch.dtype, *, keys: bool) -> Rotation | None:
        """The turn of queries or keys at these places; nothing where it would change nothing."""
        rows = stage or ((1, 0),) * len(at_bn)
        tables = [self.table(start) for start, _ in rows]
        if not self.decays and not any(table.inv_freq.any() for table in tables):
            return None
        turns = []
        for at, table, (_, origin) in zip(at_bn, tables, rows, strict=True):
            turns.append(rotation_at(at, table, origin - at if keys else at - origin))
        cos, sin = (torch.stack(each)[:, None] for each in zip(*turns, strict=True))
        return Rotation(cos.to(compute_dtype(dtype)), sin.to(compute_dtype(dtype)))


def _arranged(spans: Sequence[Span], begins: Sequence[int], spare: int) -> tuple[list[KVBuffer], list[At], list[int]]:
    """The shelves, how each places its keys, and each span's: spans that place keys alike share what keeps enough."""
    needs = [span_retention(span) for span in spans]
    ways = [span.k_at(PROBED).double().numpy().tobytes() for span in spans]
    entire = {way for way, need in zip(ways, needs, strict=True) if need.last is None}
    keys = [(way, way in entire or bool(need.last)) for way, need in zip(ways, needs, strict=True)]
    total: dict[tuple[bytes, bool], Retention] = {}
    for key, need in zip(keys, needs, strict=True):
        total[key] = total.get(key, Retention()) | need
    k_at = [spans[keys.index(key)].k_at for key in total]
    return [_shelf(need, begins, spare) for need in total.values()], k_at, [list(total).index(key) for key in keys]


def _shelf(need: Retention, begins: Sequence[int], spare: int) -> KVBuffer:
    if need.last is None:
        return FullBuffer()
    return RingBuffer(need.last, spare) if need.last else PrefixBuffer(need.first, begins)
