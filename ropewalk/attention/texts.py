"""A batch as texts: runs of tokens that attend among themselves, equal ones together.

Padding on either side, rows of unequal length and packed documents all come down to this; nothing later knows of them.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import torch
from torch import Tensor

from ropewalk.inputs import PAD


class Text(NamedTuple):
    """The batch rows that hold a text numbered so in these slots, and how many of its last tokens are queries."""

    batch: list[int]
    slots: slice
    numbers: Tensor
    queries: int

    def asked(self, before: int) -> slice:
        """The text's queries among those of its row, where `before` keys come before the first query."""
        return slice(self.slots.stop - self.queries - before, self.slots.stop - before)


def texts(numbers_bj: Tensor, documents_bj: Tensor | None, queries: int) -> list[Text]:
    """Every text that has a query among the last `queries` slots of its row."""
    numbers_bj = numbers_bj.cpu()
    documents_bj = torch.zeros_like(numbers_bj) if documents_bj is None else documents_bj.cpu()
    first_query = numbers_bj.shape[1] - queries
    found: dict[tuple[object, ...], Text] = {}
    for row, (numbers, documents) in enumerate(zip(numbers_bj, documents_bj, strict=True)):
        for slots in _runs(numbers, documents):
            asked = min(slots.stop - first_query, slots.stop - slots.start)
            if asked > 0:
                same = (slots.start, slots.stop, numbers[slots].numpy().tobytes())
                found.setdefault(same, Text([], slots, numbers[slots], asked)).batch.append(row)
    return list(found.values())


def _runs(numbers_j: Tensor, documents_j: Tensor) -> list[slice]:
    """Maximal stretches of real tokens of one document."""
    if not len(numbers_j):
        return []
    changed = (documents_j.diff() != 0) | ((numbers_j == PAD).diff())
    edges = [0, *(1 + changed.nonzero().flatten()).tolist(), len(numbers_j)]
    runs = [slice(first, end) for first, end in itertools.pairwise(edges)]
    return [run for run in runs if int(numbers_j[run.start]) != PAD]
