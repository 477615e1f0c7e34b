"""A batch as texts: runs of tokens that attend among themselves, equal ones together.

Padding on either side, rows of unequal length and packed documents all come down to this; nothing later knows of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ropewalk.inputs import PAD


class SequenceGroup(NamedTuple):
    """The batch rows that hold a text numbered so in these slots, and how many of its last tokens are queries."""

    batch: list[int]
    slots: slice
    numbers: Tensor
    queries: int

    @property
    def asking(self) -> Tensor:
        """The numbers of the queries."""
        return self.numbers[len(self.numbers) - self.queries :]

    def asked(self, before: int) -> slice:
        """The text's queries among those of its row, where `before` keys come before the first query."""
        return slice(self.slots.stop - self.queries - before, self.slots.stop - before)


def sequence_groups(numbers_bj: Tensor, documents_bj: Tensor | None, queries: int) -> list[SequenceGroup]:
    """Every text that has a query among the last `queries` slots of its row."""
    numbers_bj = numbers_bj.cpu()
    documents_bj = torch.zeros_like(numbers_bj) if documents_bj is None else documents_bj.cpu()
    first_query = numbers_bj.shape[1] - queries
    found: dict[tuple[object, ...], SequenceGroup] = {}
    for row, (numbers, documents) in enumerate(zip(numbers_bj, documents_bj, strict=True)):
        for slots in _runs(numbers, documents):
            asked = min(slots.stop - first_query, slots.stop - slots.start)
            if asked > 0:
                same = (slots.start, slots.stop, numbers[slots].numpy().tobytes())
                found.setdefault(same, SequenceGroup([], slots, numbers[slots], asked)).batch.append(row)
    return list(found.values())


def _runs(numbers_j: Tensor, documents_j: Tensor) -> list[slice]:
    """Maximal stretches of real tokens of one document."""
    if not len(numbers_j):
        return []
    changed = (documents_j.diff() != 0) | ((numbers_j == PAD).diff())
    edges = [0, *(1 + changed.nonzero().flatten()).tolist(), len(numbers_j)]
    runs = [slice(first, end) for first, end in itertools.pairwise(edges)]
    return [run for run in runs if int(numbers_j[run.start]) != PAD]


def split_batch(x_bhnd: Tensor, found: Sequence[SequenceGroup], places: Sequence[slice]) -> list[Tensor]:
    """Each text's part of the batch, [its rows, heads, its place, ...].

    Rows are split rather than sliced: then the gradients of a thousand texts are put together once, not a thousand
    times.
    """
    if len(found) == 1 and found[0].batch == list(range(len(x_bhnd))):
        return [x_bhnd[:, :, places[0]]]
    rows = []
    for row, x_hnd in enumerate(x_bhnd.unbind(0)):
        own = [place for text, place in zip(found, places, strict=True) if row in text.batch]
        edges = sorted({0, x_hnd.shape[1], *(place.start for place in own), *(place.stop for place in own)})
        parts = torch.split(x_hnd, [end - first for first, end in itertools.pairwise(edges)], dim=1)
        rows.append(dict(zip(edges, parts, strict=False)))
    return [
        torch.stack([rows[row][place.start] for row in text.batch]) for text, place in zip(found, places, strict=True)
    ]


def merge_batch(
    answers: Sequence[Tensor], found: Sequence[SequenceGroup], places: Sequence[slice], nothing: Tensor
) -> Tensor:
    """The answers of all texts as one batch, `nothing` (zeros) where no text is."""
    if len(answers) == 1 and answers[0].shape == nothing.shape:
        return answers[0]
    rows: list[dict[int, Tensor]] = [{} for _ in range(len(nothing))]
    for answer, text, place in zip(answers, found, places, strict=True):
        for row, part in zip(text.batch, answer.unbind(0), strict=True):
            rows[row][place.start] = part
    return torch.stack([_row(parts, blank) for parts, blank in zip(rows, nothing, strict=True)]) if rows else nothing


def _row(parts: dict[int, Tensor], blank_hnd: Tensor) -> Tensor:
    """One batch row: its parts in order, blank between them."""
    pieces, place = [], 0
    for first in sorted(parts):
        pieces += [blank_hnd[:, place:first], parts[first]]
        place = first + parts[first].shape[1]
    return torch.cat([*pieces, blank_hnd[:, place:]], 1)
