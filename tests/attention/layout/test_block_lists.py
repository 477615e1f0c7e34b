"""The expanded lists of blocks are the intervals: every pair, by queries and by keys."""

import pytest
import torch

from ropewalk.attention.layout.block_lists import FLEX_BLOCK, block_lists
from ropewalk.methods.reach.reach import always

from examples import REACH

KEPT = ("n_sink", "leak", "group")
WIDE = [
    type(spec)(
        **{
            key: value if key in KEPT or value is None or isinstance(value, bool) else 40 * value
            for key, value in vars(spec).items()
        }
    )
    for spec in REACH
]


def expanded(counts, indices):
    """Which block sees which; and every list names a block once."""
    met = torch.zeros(counts.shape[-1], 1000, dtype=torch.int64)
    for row, (count, columns) in enumerate(zip(counts[0, 0].tolist(), indices[0, 0].tolist(), strict=True)):
        assert columns[:count] == sorted(set(columns[:count]))
        met[row, columns[:count]] = 1
    return met


def assert_lists(start, stop, keys):
    lists = block_lists(start, stop, keys)
    assert all(tensor.dtype == torch.int32 and tensor.is_contiguous() for tensor in lists)
    # FlexAttention's kernels for CUDA read the lists of full blocks by the strides of the others.
    assert lists.kv_indices.stride() == lists.full_kv_indices.stride()
    assert lists.q_indices.stride() == lists.full_q_indices.stride()
    j = torch.arange(keys)
    dense = (start[:, None] <= j) & (j < stop[:, None])
    partial, full = expanded(*lists[:2]), expanded(*lists[2:4])
    assert not (partial & full).any()
    for row in range(0, len(start), FLEX_BLOCK):
        for column in range(0, keys, FLEX_BLOCK):
            square = dense[row : row + FLEX_BLOCK, column : column + FLEX_BLOCK]
            place = (row // FLEX_BLOCK, column // FLEX_BLOCK)
            assert bool(full[place]) == (square.shape == (FLEX_BLOCK, FLEX_BLOCK) and bool(square.all())), place
            assert partial[place] or full[place] or not square.any(), place
    blocks = (-(-len(start) // FLEX_BLOCK), -(-keys // FLEX_BLOCK))
    for met, lists_of_queries in ((partial, lists[4:6]), (full, lists[6:])):
        other = expanded(*lists_of_queries)
        assert torch.equal(other[: blocks[1], : blocks[0]], met[: blocks[0], : blocks[1]].T)
        assert other.sum() == met.sum()
    return int(partial.sum()), int(full.sum())


@pytest.mark.parametrize("spec", WIDE, ids=str)
@pytest.mark.parametrize(("queries", "before"), [(1, 0), (128, 0), (300, 0), (257, 300), (5, 700)])
def test_the_lists_are_the_intervals(spec, queries, before):
    i = torch.arange(before, before + queries)
    for span in spec.spans():
        assert_lists(*span.bounds(i), before + queries)


def test_scattered_intervals_too():
    rng = torch.Generator().manual_seed(0)
    for _ in range(20):
        edges = torch.randint(0, 500, (2, 300), generator=rng).sort(0).values
        assert_lists(edges[0], edges[1].where(torch.rand(300, generator=rng) < 0.9, edges[0]), 500)


def test_no_block_is_met_in_vain():
    i = torch.arange(1024)
    assert assert_lists(i * 0, i + 1, 1024) == (8, 28)
    assert assert_lists((i - 255).clamp(min=0), i + 1, 1024) == (8 + 6, 7)
    assert assert_lists(always(0)(i), (i - 511).clamp(min=0), 1024) == (4, 6)
    assert assert_lists(i * 0, i * 0, 1024) == (0, 0)
    assert assert_lists(torch.where(i < 5, 0, 512), torch.where(i < 5, 0, 600), 1024) == (8, 0)
    assert assert_lists(i // 128 * 128, i // 128 * 128 + 128, 1024) == (0, 8)


@pytest.mark.parametrize("length", [1 << 14, 1 << 17])
def test_memory_is_linear_where_the_reach_is_bounded(length):
    i = torch.arange(length)
    assert sum(tensor.numel() for tensor in block_lists((i - 511).clamp(min=0), i + 1, length)) <= length // 8
