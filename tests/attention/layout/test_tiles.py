"""Tiles cover the intervals: all of them, once, and nothing else."""

import pytest
import torch

from ropewalk.attention.layout.segments import Tile, tiles_of

from attention.layout.painting import painted, wanted
from examples import REACH


@pytest.mark.sampled
@pytest.mark.parametrize("spec", REACH, ids=str)
@pytest.mark.parametrize("rows", [1, 2, 7, 64, 101])
@pytest.mark.parametrize("before", [0, 1, 30])
def test_every_span_is_covered_exactly_once(spec, rows, before):
    i = torch.arange(before, before + rows)
    for span in spec.spans():
        start, stop = span.bounds(i)
        pieces = tiles_of(start, stop)
        assert torch.equal(painted(pieces, rows, before + rows), wanted(start, stop, before + rows))
        assert sum(piece.pairs for piece in pieces) == int((stop - start).sum())


def test_scattered_intervals_are_covered_too():
    rng = torch.Generator().manual_seed(0)
    for _ in range(50):
        edges = torch.randint(0, 20, (2, 15), generator=rng).sort(0).values
        start, stop = edges[0].sort().values, edges[1].sort().values.maximum(edges[0].sort().values)
        assert torch.equal(painted(tiles_of(start, stop), 15, 20), wanted(start, stop, 20))


def test_no_rows_need_no_tiles():
    nothing = torch.zeros(0, dtype=torch.int64)
    assert tiles_of(nothing, nothing) == []
    assert tiles_of(torch.tensor([3, 3]), torch.tensor([3, 3])) == []


def test_shapes_by_hand():
    i = torch.arange(100)
    assert tiles_of(torch.zeros_like(i), i + 1) == [Tile("triangle", 0, 100, 0, 100)]
    far = [Tile("triangle", 30, 70, 0, 70)]
    assert tiles_of(torch.zeros_like(i), (i - 29).clamp(min=0)) == far
    window = tiles_of((i - 9).clamp(min=0), i + 1)
    assert window == [Tile("band", 10, 90, 1, 99), Tile("triangle", 0, 10, 0, 10)]
    assert tiles_of(i // 25 * 25, i + 1) == [Tile("triangle", first, 25, first, 25) for first in (0, 25, 50, 75)]
    late = tiles_of(torch.zeros(5, dtype=torch.int64), torch.arange(96, 101))
    assert late == [Tile("rectangle", 0, 5, 0, 95), Tile("triangle", 0, 5, 95, 5)]


@pytest.mark.parametrize("spec", REACH, ids=str)
def test_few_tiles_for_long_texts(spec):
    i = torch.arange(16_384)
    wide = {name: 512 * value for name, value in vars(spec).items() if type(value) is int and name != "n_sink"}
    spans = type(spec)(**{**vars(spec), **wide}).spans() if wide else spec.spans()
    # Dual chunk attention cuts this text into seven stretches, and each into three pieces: no other reach takes more.
    assert sum(len(tiles_of(*span.bounds(i))) for span in spans) <= 7 * 3
