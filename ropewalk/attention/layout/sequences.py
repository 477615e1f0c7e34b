"""Rows of a batch as sequences, and what layers share within a pass."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from ropewalk.extension.inputs import PAD, Tokens

# What the layers of one forward pass share: segments and rotations, from the same positions under the same extension.
#
# A forward pass opens one `SharedLayout` around its layers. Results computed inside are stored under their inputs for
# the length of the pass. Outside, nothing is stored.


Result = TypeVar("Result")
MOST_NUMBERS = 2**24  # numbers: larger results are computed anew, since a pass holds them until its end


class SharedLayout:
    """What one pass has computed so far."""

    def __init__(self) -> None:
        self.results: dict[Hashable, Any] = {}
        self.size = 0


_OPEN: ContextVar[SharedLayout | None] = ContextVar("shared", default=None)


@contextmanager
def share_results(shared: SharedLayout) -> Iterator[None]:
    """Store results while the context is open, and reuse them."""
    token = _OPEN.set(shared)
    try:
        yield
    finally:
        _OPEN.reset(token)


def compute_once(
    what: str, spec: Hashable, tensors: tuple[Tensor, ...], compute: Callable[[], Result], size: int = 0
) -> Result:
    """The result of `compute`, once for a spec and the contents of tensors; `size` is the count of its numbers."""
    shared = _OPEN.get()
    if shared is None or shared.size + size > MOST_NUMBERS or any(tensor.device.type != "cpu" for tensor in tensors):
        return compute()
    key = (what, spec, *((tensor.dtype, tensor.shape, tensor.numpy().tobytes()) for tensor in tensors))
    if key not in shared.results:
        shared.results[key] = compute()
        shared.size += size
    result: Result = shared.results[key]
    return result


# A batch as sequences: runs of tokens that attend among themselves, equal ones in one group.
#
# Padding on either side, rows of unequal length and packed documents are all handled here; no later step sees them.


class SequenceGroup(NamedTuple):
    """The batch rows that hold a sequence with these numbers in these slots; its last tokens are queries."""

    batch: list[int]
    slots: slice
    numbers: Tensor
    queries: int
    pair_positions: Tensor | None = None  # where each pair of a token stands, [tokens, pairs], if that differs
    last_seen: Tensor | None = None  # the number of the last token that each token sees, if that is later
    written: Tensor | None = None  # whether the model wrote each token, if a reach tells them apart

    @property
    def queries_written(self) -> Tensor | None:
        """Whether the model wrote each query."""
        return None if self.written is None else self.written[len(self.numbers) - self.queries :]

    @property
    def query_numbers(self) -> Tensor:
        """The numbers of the queries."""
        return self.numbers[len(self.numbers) - self.queries :]

    def query_slots(self, before: int) -> slice:
        """The sequence's queries among those of its row, where `before` keys come before the first query."""
        return slice(self.slots.stop - self.queries - before, self.slots.stop - before)


def sequence_groups(numbers_bj: Tensor, tokens: Tokens, queries: int) -> list[SequenceGroup]:
    """Every sequence that has a query among the last `queries` slots of its row."""
    numbers_bj = numbers_bj.cpu()
    documents_bj = torch.zeros_like(numbers_bj) if tokens.documents_bj is None else tokens.documents_bj.cpu()
    first_query = numbers_bj.shape[1] - queries
    stated = (tokens.pair_positions_bjp, tokens.last_seen_bj, tokens.written_bj)
    of_tokens = [x if x is None else x.cpu() for x in stated]
    groups: dict[tuple[object, ...], SequenceGroup] = {}
    for row, (numbers, documents) in enumerate(zip(numbers_bj, documents_bj, strict=True)):
        for slots in _runs(numbers, documents):
            count = min(slots.stop - first_query, slots.stop - slots.start)
            if count > 0:
                parts = [numbers[slots], *(x if x is None else x[row, slots] for x in of_tokens)]
                key = (slots.start, slots.stop, *map(_contents, parts))
                groups.setdefault(key, SequenceGroup([], slots, parts[0], count, *parts[1:])).batch.append(row)
    return list(groups.values())


def _contents(tensor: Tensor | None) -> bytes | None:
    return None if tensor is None else tensor.contiguous().numpy().tobytes()


def _runs(numbers_j: Tensor, documents_j: Tensor) -> list[slice]:
    """Maximal runs of real tokens of one document."""
    if not len(numbers_j):
        return []
    changed = (documents_j.diff() != 0) | ((numbers_j == PAD).diff())
    edges = [0, *(1 + changed.nonzero().flatten()).tolist(), len(numbers_j)]
    runs = [slice(first, end) for first, end in itertools.pairwise(edges)]
    return [run for run in runs if int(numbers_j[run.start]) != PAD]


def split_batch(x_bhnd: Tensor, groups: Sequence[SequenceGroup], slots: Sequence[slice]) -> list[Tensor]:
    """The part of each group, [its rows, heads, its slots, ...].

    Rows are split rather than sliced: then the gradients of a thousand sequences are put together once, not a thousand
    times.
    """
    if len(groups) == 1 and groups[0].batch == list(range(len(x_bhnd))):
        return [x_bhnd[:, :, slots[0]]]
    pairs, rows = list(zip(groups, slots, strict=True)), []
    for row, x_hnd in enumerate(x_bhnd.unbind(0)):
        runs = [run for group, run in pairs if row in group.batch]
        edges = sorted({0, x_hnd.shape[1], *(run.start for run in runs), *(run.stop for run in runs)})
        parts = torch.split(x_hnd, [end - first for first, end in itertools.pairwise(edges)], dim=1)
        rows.append(dict(zip(edges, parts, strict=False)))
    return [torch.stack([rows[row][run.start] for row in group.batch]) for group, run in pairs]


def split_mask(
    mask_bhij: Tensor | None, groups: Sequence[SequenceGroup], query_slots: Sequence[slice]
) -> list[Tensor | None]:
    """The part of each group of a mask of queries and keys: its rows, its queries, its keys."""
    if mask_bhij is None:
        return [None] * len(groups)
    if len(groups) == 1 and groups[0].batch == list(range(len(mask_bhij))):
        return [mask_bhij[:, :, query_slots[0], groups[0].slots]]
    return [mask_bhij[group.batch][:, :, run, group.slots] for group, run in zip(groups, query_slots, strict=True)]


def merge_batch(
    outputs: Sequence[Tensor], groups: Sequence[SequenceGroup], slots: Sequence[slice], zeros: Tensor
) -> Tensor:
    """The outputs of all groups as one batch, `zeros` where no sequence is."""
    if len(outputs) == 1 and outputs[0].shape == zeros.shape:
        return outputs[0]
    rows: list[dict[int, Tensor]] = [{} for _ in range(len(zeros))]
    for output, group, run in zip(outputs, groups, slots, strict=True):
        for row, part in zip(group.batch, output.unbind(0), strict=True):
            rows[row][run.start] = part
    return torch.stack([_row(parts, blank) for parts, blank in zip(rows, zeros, strict=True)]) if rows else zeros


def _row(parts: dict[int, Tensor], blank_hnd: Tensor) -> Tensor:
    """One batch row: its parts in order, zeros between them."""
    ordered, done = [], 0
    for first in sorted(parts):
        ordered += [blank_hnd[:, done:first], parts[first]]
        done = first + parts[first].shape[1]
    return torch.cat([*ordered, blank_hnd[:, done:]], 1)
