"""Where a memory keeps the vectors of past tokens: all of them, the last ones, or the first ones.

A shelf has lanes: turned keys, their values, and whatever else goes with a token. Slots count the tokens since the
memory began, padding included; numbers count within each row's own text. A kind of shelf only knows places; the tensors
are the memory's, one set for each layer.

Legend: b batch, g key head, n token, d head dimension.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

GROWTH = 1.25  # how much room a full shelf makes
ROOM = 256  # tokens, at the least

Lanes = list[Tensor]


class BufferUpdate(NamedTuple):
    """What is kept after tokens came in; and all that they may see, in order, from the first's slot (or number) on."""

    kept: Lanes
    first: int
    ordered: Lanes


class KVBuffer(Protocol):
    """What a memory asks of a kind of shelf. `count` is how many slots there were before."""

    @property
    def by_number(self) -> bool:
        """Whether places go by each row's numbers rather than by slots."""

    def takes(self, count: int) -> bool:
        """Whether the token at this slot is kept at all, in any row."""

    def can_forget(self, furthest: int, count: int) -> bool:
        """Whether the tokens from `count` on can be taken back when all up to `furthest` have come."""

    def extend(self, kept: Lanes, new: Lanes, count: int) -> BufferUpdate:
        """Take in tokens."""

    def push(self, kept: Lanes, new: Lanes, count: int) -> Lanes:
        """Take in one token, in place."""

    def held(self, count: int) -> slice:
        """The places that are taken."""

    def where(self, start: int, stop: int) -> list[slice]:
        """The places of the slots from start to stop, in any order."""

    def slots(self, place: slice, newest: int) -> Tensor:
        """What these places hold once `newest` is the last slot."""


@dataclass(frozen=True)
class FullBuffer:
    """Everything, in order, with room to grow."""

    by_number = False

    def takes(self, count: int) -> bool:
        """Always."""
        return True

    def can_forget(self, furthest: int, count: int) -> bool:
        """Always."""
        return True

    def extend(self, kept: Lanes, new: Lanes, count: int) -> BufferUpdate:
        """Everything, in order."""
        end = count + new[0].shape[2]
        kept = _roomy(kept, new, count, end)
        for lane, part in zip(kept, new, strict=True):
            lane[:, :, count:end] = part
        return BufferUpdate(kept, 0, [lane[:, :, :end] for lane in kept])

    def push(self, kept: Lanes, new: Lanes, count: int) -> Lanes:
        """Behind the last."""
        return self.extend(kept, new, count).kept

    def held(self, count: int) -> slice:
        """All that came."""
        return slice(0, count)

    def where(self, start: int, stop: int) -> list[slice]:
        """Slots are places."""
        return [slice(start, stop)]

    def slots(self, place: slice, newest: int) -> Tensor:
        """Places are slots."""
        return torch.arange(place.start, place.stop)


def _roomy(kept: Lanes, new: Lanes, count: int, end: int) -> Lanes:
    """The same lanes with room up to `end`."""
    if kept and end <= kept[0].shape[2]:
        return kept
    room = max(end, ROOM, int(count * GROWTH))
    wider = [part.new_empty(*part.shape[:2], room, part.shape[3]) for part in new]
    for lane, old in zip(wider, kept, strict=False):
        lane[:, :, :count] = old[:, :, :count]
    return wider


@dataclass(frozen=True)
class RingBuffer:
    """The last `size` tokens, each new one in the place of the oldest: softmax does not ask for their order.

    With `spare` places more, as many tokens can be taken back at any time.
    """

    size: int
    spare: int = 0
    by_number = False

    @property
    def room(self) -> int:
        """How many places there are."""
        return self.size + self.spare

    def takes(self, count: int) -> bool:
        """Always."""
        return True

    def can_forget(self, furthest: int, count: int) -> bool:
        """As long as what would be seen again has not been written over."""
        return furthest - self.room <= max(0, count - self.size)

    def extend(self, kept: Lanes, new: Lanes, count: int) -> BufferUpdate:
        """What was kept and what is new, in order; and the last of it."""
        kept = kept or self._room(new)
        first, end = max(0, count - self.size), count + new[0].shape[2]
        places = self._in_order(first, count)
        ordered = [
            torch.cat([*(lane[:, :, place] for place in places), part], 2) if places else part
            for lane, part in zip(kept, new, strict=True)
        ]
        newest = torch.arange(max(count, end - self.room), end)
        for lane, part in zip(kept, new, strict=True):
            lane[:, :, newest % self.room] = part[:, :, newest - count]
        return BufferUpdate(kept, first, ordered)

    def push(self, kept: Lanes, new: Lanes, count: int) -> Lanes:
        """Over the oldest."""
        kept = kept or self._room(new)
        place = count % self.room
        for lane, part in zip(kept, new, strict=True):
            lane[:, :, place : place + 1] = part
        return kept

    def _room(self, like: Lanes) -> Lanes:
        return [part.new_empty(*part.shape[:2], self.room, part.shape[3]) for part in like]

    def held(self, count: int) -> slice:
        """From the first on, and soon all."""
        return slice(0, min(count, self.room))

    def where(self, start: int, stop: int) -> list[slice]:
        """A whole ring as it lies."""
        return [slice(0, self.room)] if stop - start == self.room else self._in_order(start, stop)

    def _in_order(self, start: int, stop: int) -> list[slice]:
        """One stretch of places, or two where the ring closes."""
        first, end = start % self.room, start % self.room + stop - start
        if end <= self.room:
            return [slice(first, end)] if end > first else []
        return [slice(first, self.room), slice(0, end - self.room)]

    def slots(self, place: slice, newest: int) -> Tensor:
        """The latest slot that fell on each place."""
        return newest - (newest - torch.arange(place.start, place.stop)) % self.room


@dataclass(frozen=True)
class PrefixBuffer:
    """The tokens numbered below `size`, each in the place of its number; `begins` numbers each row's slot 0."""

    size: int
    begins: Sequence[int]
    by_number = True

    def takes(self, count: int) -> bool:
        """Until every row has begun."""
        return count + min(self.begins) < self.size

    def can_forget(self, furthest: int, count: int) -> bool:
        """Always: what comes again is written again."""
        return True

    def extend(self, kept: Lanes, new: Lanes, count: int) -> BufferUpdate:
        """The beginnings."""
        kept = kept or [part.new_zeros(*part.shape[:2], self.size, part.shape[3]) for part in new]
        if self.takes(count):
            for row in range(len(new[0])):
                self._extend_row(kept, new, count, row)
        return BufferUpdate(kept, 0, kept)

    def _extend_row(self, kept: Lanes, new: Lanes, count: int, row: int) -> None:
        number = count + self.begins[row % len(self.begins)]  # of the first that is new
        first, stop = max(number, 0), min(number + new[0].shape[2], self.size)
        if first < stop:
            for lane, part in zip(kept, new, strict=True):
                lane[row, :, first:stop] = part[row, :, first - number : stop - number]

    def push(self, kept: Lanes, new: Lanes, count: int) -> Lanes:
        """Only what is of the beginning."""
        return self.extend(kept, new, count).kept

    def held(self, count: int) -> slice:
        """All of it, blank at first."""
        return slice(0, self.size)

    def where(self, start: int, stop: int) -> list[slice]:
        """Numbers are places."""
        return [slice(start, stop)]

    def slots(self, place: slice, newest: int) -> Tensor:
        """Places are numbers."""
        return torch.arange(place.start, place.stop)
