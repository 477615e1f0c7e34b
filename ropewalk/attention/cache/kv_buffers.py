"""Where a layer cache stores the vectors of past tokens: all of them, the last ones, or the first ones.

A buffer has lanes: rotated keys, their values, and other vectors of a token. Slots count the tokens since the cache
began, padding included; numbers count within each row's sequence. A buffer only computes indices. The tensors belong to
the cache, one set for each layer.

Legend: b batch, g key head, n token, d head dimension.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

GROWTH = 1.25  # how much larger a full buffer becomes
LEAST_ROOM = 256  # tokens of a full buffer, at least

Lanes = list[Tensor]


class BufferUpdate(NamedTuple):
    """The lanes after new tokens; and all that these may see, in order, from slot (or number) `first` on."""

    lanes: Lanes
    first: int
    ordered: Lanes


class KVBuffer(Protocol):
    """The interface of all buffers. `count` is the number of slots before the call."""

    @property
    def by_number(self) -> bool:
        """Whether indices are each row's numbers rather than slots."""

    def takes(self, count: int) -> bool:
        """Whether the token at this slot is stored, in any row."""

    def can_forget(self, furthest: int, count: int) -> bool:
        """Whether the tokens from `count` on can be removed after all up to `furthest` were read."""

    def extend(self, lanes: Lanes, new: Lanes, count: int) -> BufferUpdate:
        """Store tokens."""

    def push(self, lanes: Lanes, new: Lanes, count: int) -> Lanes:
        """Store one token, in place."""

    def held(self, count: int) -> slice:
        """The indices in use."""

    def where(self, start: int, stop: int) -> list[slice]:
        """The indices of the slots from start to stop, in any order."""

    def slots(self, indices: slice, newest: int) -> Tensor:
        """The slots at these indices once `newest` is the last slot."""


@dataclass(frozen=True)
class FullBuffer:
    """All tokens, in order, with room to grow."""

    by_number = False

    def takes(self, count: int) -> bool:
        """Every token is stored."""
        return True

    def can_forget(self, furthest: int, count: int) -> bool:
        """Tokens can always be removed."""
        return True

    def extend(self, lanes: Lanes, new: Lanes, count: int) -> BufferUpdate:
        """Append the tokens; all of them are visible, in order."""
        end = count + new[0].shape[2]
        lanes = _make_room(lanes, new, count, end)
        for lane, part in zip(lanes, new, strict=True):
            lane[:, :, count:end] = part
        return BufferUpdate(lanes, 0, [lane[:, :, :end] for lane in lanes])

    def push(self, lanes: Lanes, new: Lanes, count: int) -> Lanes:
        """Store the token after the last one."""
        return self.extend(lanes, new, count).lanes

    def held(self, count: int) -> slice:
        """All slots so far."""
        return slice(0, count)

    def where(self, start: int, stop: int) -> list[slice]:
        """Indices are slots."""
        return [slice(start, stop)]

    def slots(self, indices: slice, newest: int) -> Tensor:
        """Indices are slots."""
        return torch.arange(indices.start, indices.stop)


def _make_room(lanes: Lanes, new: Lanes, count: int, end: int) -> Lanes:
    """The same lanes with room up to `end`."""
    if lanes and end <= lanes[0].shape[2]:
        return lanes
    room = max(end, LEAST_ROOM, int(count * GROWTH))
    wider = [part.new_empty(*part.shape[:2], room, part.shape[3]) for part in new]
    for lane, old in zip(wider, lanes, strict=False):
        lane[:, :, :count] = old[:, :, :count]
    return wider


@dataclass(frozen=True)
class RingBuffer:
    """The last `size` tokens; each new one overwrites the oldest, since softmax does not depend on their order.

    With `spare` more slots, up to that many tokens can be removed at any time.
    """

    size: int
    spare: int = 0
    by_number = False

    @property
    def room(self) -> int:
        """The length of the ring."""
        return self.size + self.spare

    def takes(self, count: int) -> bool:
        """Every token is stored."""
        return True

    def can_forget(self, furthest: int, count: int) -> bool:
        """Tokens can be removed while those that become visible again are not overwritten."""
        return furthest - self.room <= max(0, count - self.size)

    def extend(self, lanes: Lanes, new: Lanes, count: int) -> BufferUpdate:
        """The old tokens and the new ones, in order; and the ring with the last of them."""
        lanes = lanes or self._empty(new)
        first, end = max(0, count - self.size), count + new[0].shape[2]
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
        lanes = lanes or self._empty(new)
        index = count % self.room
        for lane, part in zip(lanes, new, strict=True):
            lane[:, :, index : index + 1] = part
        return lanes

    def _empty(self, like: Lanes) -> Lanes:
        return [part.new_empty(*part.shape[:2], self.room, part.shape[3]) for part in like]

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
class PrefixBuffer:
    """The tokens numbered below `size`, at the index of their number; `begins` numbers each row's slot 0."""

    size: int
    begins: Sequence[int]
    by_number = True

    def takes(self, count: int) -> bool:
        """Tokens are stored until every row has `size` of them."""
        return count + min(self.begins) < self.size

    def can_forget(self, furthest: int, count: int) -> bool:
        """Tokens can always be removed: the same numbers are written again."""
        return True

    def extend(self, lanes: Lanes, new: Lanes, count: int) -> BufferUpdate:
        """The first tokens of each row."""
        lanes = lanes or [part.new_zeros(*part.shape[:2], self.size, part.shape[3]) for part in new]
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

    def push(self, lanes: Lanes, new: Lanes, count: int) -> Lanes:
        """Store the token if its number is below `size`."""
        return self.extend(lanes, new, count).lanes

    def held(self, count: int) -> slice:
        """All indices; they hold zeros at first."""
        return slice(0, self.size)

    def where(self, start: int, stop: int) -> list[slice]:
        """Indices are numbers."""
        return [slice(start, stop)]

    def slots(self, indices: slice, newest: int) -> Tensor:
        """Indices are numbers."""
        return torch.arange(indices.start, indices.stop)
