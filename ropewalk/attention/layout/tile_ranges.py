"""Which tiles a block must visit, and which of them lie wholly inside a segment and need no mask.

A block of rows visits tiles of keys, a block of keys tiles of rows. A tile range is four numbers, all multiples of the
tile's size: [first, last) is visited, [inner, outer) within it lies wholly inside. All ranges are computed in time
linear in the sequence, only from the keys start <= key < stop that each row sees. Bounds that rise from row to row make
ranges short; they are correct in any case, since a tile visited needlessly is masked.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

BEYOND_ALL = 2**40  # beyond every sequence


class RowBlocks(NamedTuple):
    """For each block of rows: the bounds of the keys that any of its rows sees, and of those that all see."""

    low: Tensor
    high: Tensor
    all_low: Tensor
    all_high: Tensor


def key_tile_ranges(start: Tensor, stop: Tensor, rows: int, keys: int) -> Tensor:
    """For each block of `rows` rows: first, inner, outer, last."""
    blocks = _blocks(start, stop, rows)
    first, last = blocks.low // keys * keys, _round_up(blocks.high, keys)
    ranges = _ranges(first, _round_up(blocks.all_low, keys), blocks.all_high // keys * keys, last)
    return ranges.masked_fill((blocks.high == 0)[:, None], 0)


def row_tile_ranges(start: Tensor, stop: Tensor, rows: int, keys: int, length: int) -> Tensor:
    """For each block of `keys` keys of a sequence of `length` keys: first, inner, outer, last."""
    blocks = _blocks(start, stop, rows)
    begin = torch.arange(0, length, keys)
    first = torch.searchsorted(blocks.high.cummax(0).values, begin, right=True)
    last = torch.searchsorted(_least_from_here_on(blocks.low), begin + keys).maximum(first)
    return rows * _ranges(first, *_seeing_all(blocks, begin, begin + keys), last)


def _ranges(first: Tensor, inner: Tensor, outer: Tensor, last: Tensor) -> Tensor:
    """Where nothing lies wholly inside, inner and outer are the end."""
    none = inner >= outer
    return torch.stack([first, inner.where(~none, last), outer.where(~none, last), last], -1)


def _blocks(start: Tensor, stop: Tensor, rows: int) -> RowBlocks:
    """A last block that is not full is padded with rows that see nothing."""
    missing = -len(start) % rows
    start, stop = (pad(bound, (0, missing)).view(-1, rows) for bound in (start, stop))
    seeing = stop > start
    low, high = start.where(seeing, BEYOND_ALL).amin(1), stop.where(seeing, 0).amax(1)
    whole = seeing.all(1)
    return RowBlocks(low, high, start.amax(1).where(whole, BEYOND_ALL), stop.amin(1).where(whole, 0))


def _seeing_all(blocks: RowBlocks, begin: Tensor, end: Tensor) -> tuple[Tensor, Tensor]:
    """For each block of keys, the consecutive blocks of rows that wholly see it."""
    whole = (blocks.all_high > 0).int()
    a = int(whole.argmax())
    b = a + int(whole[a:].cumprod(0).sum())
    inner = torch.searchsorted(_least_from_here_on(blocks.all_high[a:b]), end)
    outer = torch.searchsorted(blocks.all_low[a:b].cummax(0).values, begin, right=True)
    return a + inner, a + outer


def _least_from_here_on(x: Tensor) -> Tensor:
    return x.flip(0).cummin(0).values.flip(0)


def _round_up(x: Tensor, size: int) -> Tensor:
    return -(-x // size) * size
