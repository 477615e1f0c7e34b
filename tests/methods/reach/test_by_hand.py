"""Small cases worked by hand, for what no reference covers."""

import pytest
import torch

from ropewalk.methods.reach import (
    Blockwise,
    Causal,
    Chunks,
    LambdaMask,
    LeakyReRoPE,
    ReadingWindow,
    String,
    effective_distances,
    furthest,
)

from examples import EXAMPLES
from methods.reach.relative import relative


def visible(reach, length):
    return [(~row.isnan()).nonzero().flatten().tolist() for row in relative(reach, length)]


def test_causal():
    assert visible(Causal(), 3) == [[0], [0, 1], [0, 1, 2]]


def test_blockwise_sees_its_own_half_block_and_the_one_before():
    assert visible(Blockwise(block=4), 7) == [[0], [0, 1], [0, 1, 2], [0, 1, 2, 3], [2, 3, 4], [2, 3, 4, 5], [4, 5, 6]]


def test_chunks_see_nothing_of_the_chunks_before():
    assert visible(Chunks(chunk=3), 7) == [[0], [0, 1], [0, 1, 2], [3], [3, 4], [3, 4, 5], [6]]


def test_lambda_ceiling_is_where_the_sinks_stand():
    seen = relative(LambdaMask(window=2, n_sink=1, ceiling=9), 5)
    assert seen[4].nan_to_num(-1).tolist() == [9, -1, -1, 1, 0]


def test_what_is_read_sees_a_window_and_sinks_and_what_is_written_sees_all():
    reach = ReadingWindow(window=2, n_sink=1)
    assert visible(reach, 5) == [[0], [0, 1], [0, 1, 2], [0, 2, 3], [0, 3, 4]]
    assert visible(reach.writing, 5)[4] == [0, 1, 2, 3, 4]
    assert relative(reach, 5)[4].nan_to_num(-1).tolist() == [4, -1, -1, 1, 0]  # sinks keep their distance
    assert visible(ReadingWindow(window=2, n_sink=0), 4)[3] == [2, 3]


def test_leak_need_not_be_whole():
    seen = relative(LeakyReRoPE(window=2, leak=2.5), 5)
    torch.testing.assert_close(seen[4], torch.tensor([2.8, 2.4, 2.0, 1.0, 0.0], dtype=torch.float64))


def test_string_moves_far_keys_nearer_than_some_near_ones():
    seen = relative(String(shift=4, local=1), 8)
    assert seen[3].nan_to_num(-1).tolist() == [3, 2, 1, 0, -1, -1, -1, -1]
    assert seen[7].tolist() == [4, 3, 2, 1, 3, 2, 1, 0]


@pytest.mark.parametrize("local", [1, 5, 9])
def test_string_stays_within_training_up_to_l_plus_s_minus_w(local):
    """Of L = 32 trained tokens with S = 10: row L + S - W - 1 is the last that shows no distance beyond L - 1."""
    last = 32 + 10 - local - 1
    assert [furthest(String(shift=10, local=local), row) for row in (last, last + 1)] == [31, 32]


@pytest.mark.parametrize("reach", EXAMPLES["reach"], ids=str)
def test_the_furthest_is_the_largest_of_all_distances_that_are_shown(reach):
    for row in range(70):
        keys = torch.arange(row + 1)
        assert furthest(reach, row) == effective_distances(reach, torch.tensor([row]), keys).nan_to_num(0).max()
