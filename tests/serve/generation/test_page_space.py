"""Pages of several extensions share one memory: nobody's page is ever another's."""

import pytest
import torch
from hypothesis import given, settings, strategies as st

from ropewalk.errors import DoesNotFit
from ropewalk.serve.generation.memory.page_pool import CellShape, SlabPool
from ropewalk.serve.generation.memory.page_space import START, PageSpace, name_after

LANES = (2, 3, 4)
SIZE = 4
ACTIONS = st.tuples(st.integers(0, 2), st.sampled_from(["take", "release", "name", "hold"]))


def pool_of(slabs, lanes=LANES):
    one = SlabPool([CellShape(1, 2)], lanes, size=SIZE, limit=2**20, dtype=torch.float32, device=torch.device("cpu"))
    limit = slabs * one.slab_bytes
    return SlabPool([CellShape(1, 2)], lanes, size=SIZE, limit=limit, dtype=torch.float32, device=torch.device("cpu"))


def memory_of(pool, lanes, page):
    """Which numbers of the buffer a page covers."""
    whole = pool.pages(0, lanes)
    begin = page * whole[0].numel()
    return range(begin, begin + whole[0].numel())


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["take", "release", "name", "hold"])), max_size=80),
    st.randoms(),
)
def test_pages_in_use_never_share_memory_and_nothing_is_lost(actions, chance):
    pool = pool_of(3)
    spaces = [PageSpace(pool, lanes) for lanes in LANES]
    held = []  # (space, page), once per holder
    names = 0
    for which, action in actions:
        space = spaces[which]
        if action == "take":
            page = space.take()
            if page is not None:
                assert (space, page) not in held
                held.append((space, page))
        elif held:
            owner, page = held[chance.randrange(len(held))]
            if action == "release":
                held.remove((owner, page))
                owner.release(page)
            elif action == "hold":
                owner.hold(page)
                held.append((owner, page))
            else:
                names += 1
                owner.name(page, name_after(START, [names]))
    covered = [set(memory_of(pool, owner.lanes, page)) for owner, page in set(held)]
    assert sum(map(len, covered)) == len(set().union(*covered, set()))
    for owner, page in held:
        owner.release(page)
    for space in spaces:
        while space.give_back():
            pass
    assert sorted(pool.free) == list(range(pool.count))
    assert all(space.idle == space.held == 0 for space in spaces)


def test_a_named_page_is_there_again_until_its_room_is_needed():
    pool = pool_of(1)
    space = PageSpace(pool, 2)
    pages = [space.take() for _ in range(space.per_slab)]
    assert space.take() is None
    names = [name_after(START, [n]) for n in range(len(pages))]
    for page, name in zip(pages, names, strict=True):
        space.name(page, name)
        space.release(page)
    assert [space.known(name) for name in names] == pages
    space.hold(pages[0])  # in use: the next oldest goes instead
    assert space.take() == pages[1]
    assert space.known(names[1]) is None
    assert space.known(names[0]) == pages[0]


def test_a_space_takes_what_another_does_not_use():
    pool = pool_of(1)
    one, other = PageSpace(pool, 2), PageSpace(pool, 3)
    page = one.take()
    assert other.take() is None
    one.name(page, name_after(START, [1]))
    one.release(page)
    assert other.take() is not None
    assert one.known(name_after(START, [1])) is None


def test_names_depend_on_every_token_and_on_what_is_before():
    assert name_after(START, [1, 23]) != name_after(START, [12, 3])
    assert name_after(name_after(START, [1]), [2]) != name_after(name_after(START, [2]), [2])


def test_too_little_memory_is_refused_with_what_is_needed():
    with pytest.raises(DoesNotFit, match=r"cache_memory must be at least .* MiB, one slab"):
        SlabPool([CellShape(8, 64)], LANES, size=64, limit=1000, dtype=torch.float32, device=torch.device("cpu"))
