"""Tile ranges: every visible pair is visited once, and a tile called wholly inside is."""

import pytest
import torch

from ropewalk import parse
from ropewalk.attention.layout.segments import segments_of
from ropewalk.attention.layout.tiles import key_tile_ranges, row_tile_ranges

from examples import EXAMPLES, FACTS

EVERY = [*(parse(f"reach.{spec}") for spec in EXAMPLES["reach"]), parse("dynamic_yarn")]
SIZES = [(16, 16), (8, 16), (16, 8), (32, 4)]


def bounds_of(extension, length):
    numbers, spans = torch.arange(length), len(extension.spans.spans())
    for segment in segments_of(extension, FACTS, numbers, [numbers] * spans):
        start, stop = torch.zeros(2, length, dtype=torch.int64)
        start[segment.rows], stop[segment.rows] = segment.start, segment.stop
        yield start, stop


def tiles(start, stop, rows, keys, length):
    """Which share of each tile is visible, by definition: [blocks of rows, blocks of keys]."""
    blocks, columns = -(-len(start) // rows), -(-length // keys)
    seen = torch.zeros(blocks * rows, columns * keys)
    j = torch.arange(length)
    seen[: len(start), :length] = ((start[:, None] <= j) & (j < stop[:, None])).float()
    return seen.view(blocks, rows, columns, keys).mean((1, 3))


def assert_walk(walks, shares, size, *, tight):
    """One range for every line of shares."""
    for (first, inner, outer, last), share in zip((walks // size).tolist(), shares, strict=True):
        visited = torch.zeros(len(share), dtype=torch.bool)
        visited[first:last] = True
        assert share[~visited].sum() == 0
        assert first <= inner <= outer <= last <= len(share)
        assert (share[inner:outer] == 1).all()
        if tight:
            assert outer - inner == (share == 1).sum()
            assert last - first == (share > 0).sum()
    assert (walks % size == 0).all()


@pytest.mark.parametrize("extension", EVERY, ids=str)
@pytest.mark.parametrize("length", [1, 16, 63, 150])
def test_tile_ranges_of_every_reach_are_right_and_minimal(extension, length):
    for start, stop in bounds_of(extension, length):
        for rows, keys in SIZES:
            shares = tiles(start, stop, rows, keys, length)
            assert_walk(key_tile_ranges(start, stop, rows, keys), shares, keys, tight=True)
            assert_walk(row_tile_ranges(start, stop, rows, keys, length), shares.T, rows, tight=True)


@pytest.mark.parametrize("seed", range(20))
def test_bounds_in_any_order_have_correct_ranges(seed):
    rng = torch.Generator().manual_seed(seed)
    start = torch.randint(0, 40, (70,), generator=rng)
    stop = (start + torch.randint(-10, 60, (70,), generator=rng)).clamp(min=0, max=90).maximum(start)
    start[seed : seed + 20], stop[seed : seed + 20] = 3, 80
    for rows, keys in SIZES:
        shares = tiles(start, stop, rows, keys, 90)
        assert_walk(key_tile_ranges(start, stop, rows, keys), shares, keys, tight=False)
        assert_walk(row_tile_ranges(start, stop, rows, keys, 90), shares.T, rows, tight=False)


def test_a_tile_range_by_hand():
    """Plain causal attention over 5 tokens in blocks of 2 x 2: the last block of rows has only one row."""
    start, stop = torch.zeros(5, dtype=torch.int64), torch.arange(1, 6)
    assert key_tile_ranges(start, stop, 2, 2).tolist() == [[0, 2, 2, 2], [0, 0, 2, 4], [0, 6, 6, 6]]
    assert row_tile_ranges(start, stop, 2, 2, 5).tolist() == [[0, 2, 4, 6], [2, 6, 6, 6], [4, 6, 6, 6]]
