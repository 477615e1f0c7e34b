"""Which blocks of keys each block of queries sees: computed from the bounds of the rows, never from n x n pairs.

Where every row of a block sees all of a block of keys, the block is full and needs no mask. The lists are those of
FlexAttention's BlockMask. They hold visible blocks only, so a window costs memory linear in the sequence. Where every
key is visible they hold (n / 128)^2 numbers twice, 130 KiB at 16k and 8 MiB at 128k.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

FLEX_BLOCK = 128
FEWEST_ENTRIES = 2  # entries of a list: a size of 1 would be compiled separately


class BlockLists(NamedTuple):
    """How many blocks each block sees, and which: [1, 1, blocks] and [1, 1, blocks, most], int32."""

    kv_num_blocks: Tensor
    kv_indices: Tensor
    full_kv_num_blocks: Tensor
    full_kv_indices: Tensor
    q_num_blocks: Tensor
    q_indices: Tensor
    full_q_num_blocks: Tensor
    full_q_indices: Tensor


def block_lists(start: Tensor, stop: Tensor, keys: int) -> BlockLists:
    """The lists of rows that see the keys start <= key < stop; rows that see nothing have stop <= start."""
    size = (-(-len(start) // FLEX_BLOCK), -(-keys // FLEX_BLOCK))
    first, full_first, full_end, end = _edges(start, stop, keys)
    before, after = _pairs(first, full_first), _pairs(full_end, end)
    row, column = (torch.cat(parts) for parts in zip(before, after, strict=True))
    full_row, full_column = _pairs(full_first, full_end)
    return BlockLists(
        *_pad_to_one_width(_list_members(row, column, size[0]), _list_members(full_row, full_column, size[0])),
        *_pad_to_one_width(_list_members(column, row, size[1]), _list_members(full_column, full_row, size[1])),
    )


def _pad_to_one_width(partial: tuple[Tensor, Tensor], full: tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
    """Both lists with rows of one length: FlexAttention's kernels step through both by the length of the first."""
    widths = [listed.shape[-1] for _, listed in (partial, full)]
    padded = [(count, pad(listed, (0, max(widths) - listed.shape[-1]))) for count, listed in (partial, full)]
    return (*padded[0], *padded[1])


def _edges(start: Tensor, stop: Tensor, keys: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """For each block of queries the blocks of keys that any row sees, first .. end, and the full ones among them."""
    seeing, missing = stop > start, -len(start) % FLEX_BLOCK
    # A row that sees nothing, or does not exist, begins beyond the last key and ends before the first.
    begins = torch.cat([start.where(seeing, keys + FLEX_BLOCK), start.new_full((missing,), keys + FLEX_BLOCK)]).view(
        -1, FLEX_BLOCK
    )
    ends = torch.cat([stop.where(seeing, 0), stop.new_zeros(missing)]).view(-1, FLEX_BLOCK)
    end = _round_up(ends.amax(1))
    first = torch.minimum(begins.amin(1) // FLEX_BLOCK, end)
    full_first, full_end = _round_up(begins.amax(1)), ends.amin(1) // FLEX_BLOCK
    some = full_first < full_end
    return first, full_first.where(some, end), full_end.where(some, end), end


def _round_up(keys: Tensor) -> Tensor:
    return (keys + FLEX_BLOCK - 1) // FLEX_BLOCK


def _pairs(first: Tensor, end: Tensor) -> tuple[Tensor, Tensor]:
    """Every row r with every column from first[r] up to end[r]."""
    count = end - first
    row = torch.arange(len(first)).repeat_interleave(count)
    return row, torch.arange(len(row)) - (count.cumsum(0) - count - first)[row]


def _list_members(group: Tensor, member: Tensor, groups: int) -> tuple[Tensor, Tensor]:
    """The members of each group, and how many they are."""
    order = torch.argsort(group * (1 + int(member.max())) + member) if len(group) else group
    group, member = group[order], member[order]
    groups = max(groups, FEWEST_ENTRIES)
    count = torch.bincount(group, minlength=groups)
    listed = torch.zeros(groups, max(int(count.max()), FEWEST_ENTRIES), dtype=torch.int32)
    listed[group, torch.arange(len(group)) - (count.cumsum(0) - count)[group]] = member.int()
    return count.int()[None, None], listed[None, None]
