"""SELF: groups counted one by one on the curve, a case by hand, and the reach that it becomes without groups."""

import math

import pytest
import torch

from ropewalk import Facts
from ropewalk.errors import DoesNotFit
from ropewalk.methods.reach import SELF, SelfExtend

from methods.reach.relative import relative


def grouped_one_by_one(tokens, capacity, rate):
    """G of the paper's words: group after group, each as large as the curve says at its number."""
    numbers, group = [0], 0
    while len(numbers) < tokens:
        size = capacity / (1 + (capacity - 1) * math.exp(-rate * group))
        numbers += [group + 1] * min(math.floor(size + 1e-12), capacity - 1)
        group += 1
    return numbers[:tokens]


@pytest.mark.parametrize(
    ("capacity", "rate"), [(33, 0.02), (16, 0.02), (6, 0.3), (24, 0.1), (4, 0.5), (3, 0.4), (2, 0.4), (12, 2.56)]
)
def test_groups_are_those_of_the_curve(capacity, rate):
    """The last ones are steeper than the authors' code can count: sizes are passed over."""
    expected = grouped_one_by_one(9000, capacity, rate)
    assert SELF(window=4, capacity=capacity, rate=rate).grouped(torch.arange(9000)).tolist() == expected


def test_by_hand():
    """C = 4 with r = ln 3: the curve is 4/2 at group 1 and 4/(1 + 3/9) = 3 at group 2, so sizes are 1, 2, 3, 3, ...

    A rate a little above keeps rounding away from the whole sizes. Token 0 stands alone, before all groups.
    """
    reach = SELF(window=2, capacity=4, rate=math.log(3) + 1e-9)
    assert reach.grouped(torch.arange(12)).tolist() == [0, 1, 2, 2, 3, 3, 3, 4, 4, 4, 5, 5]
    seen = relative(reach, 10)
    assert seen[9].tolist() == [6, 5, 4, 4, 3, 3, 3, 2, 1, 0]
    assert seen[3, :4].tolist() == [3, 2, 1, 0]
    assert seen[1, :2].tolist() == [1, 0]


def test_the_first_keys_stay_apart_and_later_ones_share_places():
    row = relative(SELF(window=8, capacity=6, rate=0.3), 200)[199]
    widths = row.unique_consecutive(return_counts=True)[1].tolist()[:-8]
    assert widths[:3] == [1, 1, 1]
    assert widths[1:-1] == sorted(widths[1:-1])
    assert max(widths) == 5


def test_groups_of_one_are_the_trained_model_whatever_the_rate():
    """C = 2, and Self-Extend with groups of one."""
    torch.testing.assert_close(
        relative(SELF(window=5, capacity=2, rate=9.0), 40), relative(SelfExtend(window=5, group=1), 40), equal_nan=True
    )


def test_positions_may_be_floats_of_any_shape():
    whole = torch.arange(60).view(3, 20)
    reach = SELF(window=2, capacity=5, rate=0.4)
    assert torch.equal(reach.grouped(whole.double()), reach.grouped(whole).double())


def test_a_window_beyond_training_is_refused():
    with pytest.raises(DoesNotFit, match="window must be at most 31"):
        SELF(window=32, capacity=5).check_against(Facts(trained_len=32, head_dim=8))
