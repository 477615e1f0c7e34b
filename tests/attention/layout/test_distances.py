"""The line of distances: every visible pair reads its effective distance from it."""

import pytest
import torch

from ropewalk import Extension
from ropewalk.attention.layout.segments import distance_line, segments_of
from ropewalk.methods.reach import LeakyReRoPE

from examples import FACTS, REACH


def segments_under(reach, queries, keys, numbers=None):
    numbers = torch.arange(keys) if numbers is None else numbers
    return segments_of(Extension(reach=reach), FACTS, numbers[keys - queries :], [numbers] * len(reach.spans()))


def assert_read(segment, of):
    place = of.x_i[:, None] - of.y_j
    j = torch.arange(len(of.y_j))
    seen = (segment.start[:, None] <= j) & (j < segment.stop[:, None])
    shown = (segment.q_at[:, None] - segment.k_at).double()
    assert (place < len(of.distance)).all()  # the kernel cuts what is below the line, and reads all else as it is
    assert (place[seen] >= 0).all()
    torch.testing.assert_close(of.distance[place[seen]].double(), shown[seen], rtol=0, atol=1e-9)
    assert (of.distance >= 0).all()


@pytest.mark.parametrize("reach", [*REACH, LeakyReRoPE(window=5, leak=3)], ids=str)  # no binary fraction is a third
@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (1, 40), (7, 40), (90, 90)])
def test_every_pair_reads_its_distance(reach, queries, keys):
    for segment in segments_under(reach, queries, keys):
        assert_read(segment, distance_line(segment))
        assert 2 <= len(distance_line(segment).distance) <= 2 * keys + 8


@pytest.mark.parametrize("reach", REACH, ids=str)
def test_positions_apart_are_read_too_where_they_are_whole(reach):
    numbers = torch.arange(60) * 7 + torch.arange(60) ** 2 // 9
    for segment in segments_under(reach, 20, 60, numbers):
        if hasattr(reach, "leak") and segment.span == 1:  # its far places are fractions
            assert distance_line(segment) is None
        else:
            assert_read(segment, distance_line(segment))


def test_a_line_much_longer_than_the_text_is_none():
    (segment,) = segments_under(REACH[0], 20, 20, torch.arange(20) * 1000)
    assert distance_line(segment) is None
