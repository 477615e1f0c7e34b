"""What comes into attention, and what is refused."""

import dataclasses

import pytest
import torch

import ropewalk as rw
from ropewalk import Extension, InvalidValue, Tokens, parse
from ropewalk.extension.inputs import PAD, related_pairs
from ropewalk.methods.frequencies import Frequencies
from ropewalk.methods.frequencies.frequencies import trained_theta, without_decay

from examples import FACTS

KEYS = torch.zeros(1, FACTS.groups, 6, FACTS.head_dim)


def number(positions=None, documents=None, extension=None):
    given = [None if each is None else torch.tensor([each]) for each in (positions, documents)]
    return Tokens(*given).numbers(KEYS, extension or Extension(), FACTS)[0].tolist()


def test_numbers_are_those_of_the_extension_or_as_given():
    assert number() == [0, 1, 2, 3, 4, 5]
    assert number(extension=parse("randomized:limit=12")) == [0, 2, 4, 6, 8, 10]
    assert number([PAD, PAD, 0, 1, 2, 7]) == [PAD, PAD, 0, 1, 2, 7]


def test_packed_texts_are_numbered_each_from_its_beginning():
    assert number(documents=[4, 4, 4, 4, 2, 2]) == [0, 1, 2, 3, 0, 1]
    assert number([0, 1, 0, 1, 0, 1], [0, 0, 1, 1, 2, 2]) == [0, 1, 0, 1, 0, 1]


@pytest.mark.parametrize(
    ("positions", "documents"),
    [([0, 1, 2, 0, 1, 2], None), ([0, 0, 0, 0, 0, 0], None), ([5, 4, 3, 2, 1, 0], None), ([-5, 0, 1, 2, 3, 4], None)],
)
def test_numbers_that_do_not_ascend_are_refused(positions, documents):
    with pytest.raises(InvalidValue, match=r"positions_bj must be ascending .* separate packed texts by documents_bj"):
        number(positions, documents)


@pytest.mark.parametrize("wrong", [[0, 1, 2], [0.0, 1, 2, 3, 4, 5], [True] * 6], ids=str)
@pytest.mark.parametrize("name", ["positions", "documents"])
def test_other_shapes_and_types_are_refused(name, wrong):
    with pytest.raises(InvalidValue, match=rf"{name}_bj must be whole numbers of shape \(1, 6\), got "):
        number(**{name: wrong})


@pytest.mark.parametrize(
    ("positions", "documents"),
    [([0, 1, PAD, 2, 3, 4], None), (None, [0, 0, 1, 1, 0, 0]), ([0, PAD, 0, 1, 2, 3], [0, 0, 0, 1, 1, 1])],
)
def test_texts_torn_apart_are_refused(positions, documents):
    with pytest.raises(InvalidValue, match="the tokens of a text must be adjacent, with padding only at the ends"):
        number(positions, documents)


def test_relations_by_hand():
    numbers = torch.tensor([[PAD, 0, 1, 0]])
    got = related_pairs(numbers[:, 1:], numbers, torch.tensor([[0, 0, 0, 1]]))[0].int().tolist()
    assert got == [[0, 1, 0, 0], [0, 1, 1, 0], [0, 0, 0, 1]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Broken(Frequencies):
    """A schedule that fails beyond a length."""

    name = "broken"
    above: int

    def table(self, facts, length):
        return without_decay(trained_theta(facts) * (float("nan") if length > self.above else 1.0))


@pytest.mark.parametrize("above", [0, 100])
@pytest.mark.parametrize("attention", [rw.attend, rw.reference_attention])
def test_frequencies_that_are_no_numbers(attention, above):
    facts, x = rw.Facts(trained_len=64, head_dim=16), torch.randn(1, 1, 10, 16)
    with pytest.raises(rw.InvalidValue, match="finite in every pair"):
        attention(x, x, x, rw.Extension(frequencies=Broken(above=above)), facts)
