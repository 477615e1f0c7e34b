"""Buffers: tokens are read back in order and at their index, for chunks of any size."""

import pytest
import torch

from ropewalk.attention.cache.buffers import GROWTH, LEAST_ROOM, FullBuffer, PrefixBuffer, RingBuffer

CUTS = [[1] * 23, [23], [5, 1, 1, 7, 1, 8], [4, 4, 4, 4, 7]]


def tokens(count):
    """Tokens whose numbers are their slots, in two rows."""
    return torch.arange(count).double().expand(2, 3, count)[..., None]


def fed(buffer, cuts):
    """The lanes after each of these chunks; single tokens are pushed."""
    lanes, count = [], 0
    for size in cuts:
        new = [tokens(count + size)[:, :, count:]]
        if size == 1:
            lanes = buffer.push(lanes, new, count)
        else:
            extended = buffer.extend(lanes, new, count)
            lanes = extended.lanes
            yield extended, count
        count += size
    yield lanes, count


def held(buffer, lanes, start, stop):
    return sorted(int(x) for place in buffer.where(start, stop) for x in lanes[0][0, 0, place, 0])


@pytest.mark.parametrize("cuts", CUTS, ids=str)
@pytest.mark.parametrize(
    "buffer",
    [FullBuffer(), RingBuffer(size=6), RingBuffer(size=6, spare=2), RingBuffer(size=1), RingBuffer(size=40)],
    ids=str,
)
def test_every_slot_is_at_its_index(buffer, cuts):
    *_, (lanes, count) = fed(buffer, cuts)
    oldest = max(0, count - getattr(buffer, "size", count))
    for start in range(oldest, count):
        for stop in range(start, count + 1):
            assert held(buffer, lanes, start, stop) == list(range(start, stop))
    for place in buffer.where(oldest, count):
        assert lanes[0][1, 2, place, 0].tolist() == buffer.slots(place, count - 1).tolist()
    everything = held(buffer, lanes, max(0, count - getattr(buffer, "room", count)), count)
    assert everything == sorted(lanes[0][0, 0, buffer.held(count), 0].tolist())


@pytest.mark.parametrize("cuts", CUTS[1:], ids=str)
@pytest.mark.parametrize("buffer", [FullBuffer(), RingBuffer(size=6), RingBuffer(size=3, spare=2)], ids=str)
def test_a_chunk_sees_stored_tokens_and_itself_in_order(buffer, cuts):
    for (size, before), (extended, count) in zip(
        [(cut, sum(cuts[:n])) for n, cut in enumerate(cuts) if cut > 1], fed(buffer, cuts), strict=False
    ):
        first = 0 if isinstance(buffer, FullBuffer) else max(0, before - buffer.size)
        assert (extended.first, count) == (first, before)
        assert extended.ordered[0][0, 0, :, 0].tolist() == list(range(first, before + size))


def test_room_is_filled_before_more_is_made():
    lanes, count = FullBuffer().extend([], [tokens(LEAST_ROOM - 1)], 0).lanes, LEAST_ROOM - 1
    for more, room in ((1, LEAST_ROOM), (1, int(LEAST_ROOM * GROWTH))):
        lanes = FullBuffer().push(lanes, [tokens(more)], count)
        count += more
        assert lanes[0].shape[2] == room


def test_a_ring_never_grows():
    *_, (lanes, _) = fed(RingBuffer(size=6, spare=2), [5, 100, 1, 1])
    assert lanes[0].shape == (2, 3, 8, 1)


@pytest.mark.parametrize("cuts", CUTS, ids=str)
def test_the_beginning_of_each_row(cuts):
    buffer = PrefixBuffer(size=4, begins=(0, -7))
    *_, (lanes, count) = fed(buffer, cuts)
    assert lanes[0][:, 0, :, 0].tolist() == [[0, 1, 2, 3], [7, 8, 9, 10]]
    assert buffer.takes(10)
    assert not buffer.takes(11)
    assert not buffer.takes(count)


def test_growing_keeps_what_is_there():
    lanes = FullBuffer().extend([], [tokens(200)], 0).lanes
    lanes = FullBuffer().extend(lanes, [tokens(900)[:, :, 200:]], 200).lanes
    assert lanes[0][0, 0, :900, 0].tolist() == list(range(900))
