"""Which tiles a block has to visit, and which of them lie wholly inside a strand and need no mask.

A block of rows walks over tiles of keys, a block of keys over tiles of rows. A walk is four numbers, all multiples of
the tile's size: [first, last) is visited, [inner, outer) in it lies wholly inside. All walks are found in time linear
in the text, from nothing but the keys start <= key < stop that each row sees. That bounds rise from row to row makes
walks short, not right: what is visited needlessly is masked.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

NEVER = 2**40  # beyond every text


class RowBlocks(NamedTuple):
    """Of each block of rows: the bounds of the keys that any of its rows sees, and of those that all see."""

    low: Tensor
    high: Tensor
    all_low: Tensor
    all_high: Tensor


def key_tile_ranges(start: Tensor, stop: Tensor, rows: int, keys: int) -> Tensor:
    """For each block of `rows` rows: first, inner, outer, last."""
    blocks = _blocks(start, stop, rows)
    first, last = blocks.low // keys * keys, _rounded_up(blocks.high, keys)
    walks = _walks(first, _rounded_up(blocks.all_low, keys), blocks.all_high // keys * keys, last)
    return walks.masked_fill((blocks.high == 0)[:, None], 0)


def row_tile_ranges(start: Tensor, stop: Tensor, rows: int, keys: int, length: int) -> Tensor:
    """For each block of `keys` keys of a text of `length` keys: first, inner, outer, last."""
    blocks = _blocks(start, stop, rows)
    begin = torch.arange(0, length, keys)
    first = torch.searchsorted(blocks.high.cummax(0).values, begin, right=True)
    last = torch.searchsorted(_least_from_here_on(blocks.low), begin + keys).maximum(first)
    return rows * _walks(first, *_seeing_all(blocks, begin, begin + keys), last)


def _walks(first: Tensor, inner: Tensor, outer: Tensor, last: Tensor) -> Tensor:
    """Where nothing lies wholly inside, all comes before it."""
    none = inner >= outer
    return torch.stack([first, inner.where(~none, last), outer.where(~none, last), last], -1)


def _blocks(start: Tensor, stop: Tensor, rows: int) -> RowBlocks:
    """A last block that is not full is filled with rows that see nothing."""
    missing = -len(start) % rows
    start, stop = (pad(bound, (0, missing)).view(-1, rows) for bound in (start, stop))
    seeing = stop > start
    low, high = start.where(seeing, NEVER).amin(1), stop.where(seeing, 0).amax(1)
    whole = seeing.all(1)
    return RowBlocks(low, high, start.amax(1).where(whole, NEVER), stop.amin(1).where(whole, 0))


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


def _rounded_up(x: Tensor, size: int) -> Tensor:
    return -(-x // size) * size
