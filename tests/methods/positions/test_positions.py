"""Numberings: the authors' own draws, their distributions, and evenly spaced numbers by hand."""

import itertools

import pytest
import torch

from ropewalk.errors import InvalidValue
from ropewalk.methods.positions import PoSE, Randomized, Sequential
from ropewalk.methods.positions.pose import skip_numbers

from golden_tables import golden

POSE = golden("pose")


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("expected", POSE["position_ids"])
def test_pose_numbers_as_the_authors_for_their_draws(expected):
    """Their sampler's two draws are read off its output: where the numbers jump, and by how much."""
    jumps = [b - a - 1 for a, b in itertools.pairwise(expected)]
    cut = next((place + 1 for place, jump in enumerate(jumps) if jump), 1)
    assert skip_numbers(len(expected), cut, expected[-1] - len(expected) + 1).tolist() == expected


def test_pose_draws_over_the_authors_range():
    spec, rng = PoSE(target_len=POSE["target"]), generator()
    cuts, skips = set(), set()
    for _ in range(2000):
        numbers = spec.number(POSE["train_window"], rng)
        jump = (numbers.diff() > 1).nonzero().flatten().tolist()
        skips.add(int(numbers[-1]) - 15)
        cuts |= {place + 1 for place in jump}
    assert max(skips) + 15 == POSE["measured_max_position_over_2000"]
    assert skips == set(range(49))
    assert cuts == set(range(1, 9))  # 1 .. (16 + 1) // 2


def test_without_a_generator_positions_are_fixed():
    assert PoSE(target_len=64).number(4).tolist() == [0, 1, 2, 3]
    assert Sequential().number(4).tolist() == [0, 1, 2, 3]
    assert Randomized(limit=10).number(4).tolist() == [0, 2, 5, 7]
    assert Randomized(limit=4).number(4).tolist() == [0, 1, 2, 3]


def test_randomized_is_an_ascending_sample_of_the_whole_range():
    spec, rng = Randomized(limit=20), generator()
    counts = torch.zeros(20)
    for _ in range(4000):
        numbers = spec.number(5, rng)
        assert (numbers.diff() > 0).all()
        counts[numbers] += 1
    assert (counts / 4000 - 5 / 20).abs().max() < 0.03


def test_the_same_seed_gives_the_same_numbers():
    for spec in (Randomized(limit=99), PoSE(target_len=99)):
        assert torch.equal(spec.number(9, generator(3)), spec.number(9, generator(3)))
        assert not torch.equal(spec.number(9, generator(3)), spec.number(9, generator(4)))


@pytest.mark.parametrize("spec", [Sequential(), Randomized(limit=8), PoSE(target_len=8)], ids=str)
@pytest.mark.parametrize("length", [-1, 2.0, True, "4", None])
def test_only_a_number_of_tokens_is_numbered(spec, length):
    """Not by torch.arange, which takes 2.0 for 2 and True for 1."""
    with pytest.raises(InvalidValue, match="length must be a whole number of tokens"):
        spec.number(length)


@pytest.mark.parametrize("spec", [Randomized(limit=8), PoSE(target_len=8)], ids=str)
def test_a_text_longer_than_the_range_is_refused(spec):
    with pytest.raises(InvalidValue, match="length must be at most"):
        spec.number(9)
