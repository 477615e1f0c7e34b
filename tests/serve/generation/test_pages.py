"""Pages: nobody's page is ever another's, and nothing is lost."""

import pytest
import torch
from hypothesis import given, settings, strategies as st

from ropewalk.attention.layout.retention import Retention
from ropewalk.errors import DoesNotFit
from ropewalk.serve.generation.pages import CHUNK, DEEP, PagedText, PagePool


def pool_of(pages, size=4):
    page = 3 * size * 2 * 4  # bytes: lanes, tokens, numbers of a head
    return PagePool([(1, 2)], 3, size=size, limit=pages * page, dtype=torch.float32, device=torch.device("cpu"))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(["take", "release", "hold"]), max_size=80), st.randoms())
def test_pages_in_use_are_never_taken_and_nothing_is_lost(actions, chance):
    pool, held = pool_of(6), []  # pages, once per holder
    for action in actions:
        if action == "take" and pool.free:
            page = pool.take()
            assert page not in held
            held.append(page)
        elif action != "take" and held:
            page = chance.choice(held)
            if action == "release":
                held.remove(page)
                pool.release(page)
            else:
                pool.hold(page)
                held.append(page)
        assert len(set(held)) + len(pool.free) == pool.count
    for page in held:
        pool.release(page)
    assert sorted(pool.take() for _ in range(pool.count)) == list(range(pool.count))
    with pytest.raises(DoesNotFit, match="no page is left"):
        pool.take()


def test_too_little_memory_is_refused_with_what_is_needed():
    with pytest.raises(DoesNotFit, match=r"cache_memory must be at least .* MiB, one page"):
        PagePool([(8, 64)], 4, size=64, limit=1000, dtype=torch.float32, device=torch.device("cpu"))


def read(text):
    """All of it, chunk by chunk: where each of them ends."""
    borders = []
    while text.unread:
        count = len(text.chunk())
        text.make_room(count)
        text.advance(count)
        borders.append(text.length)
    return borders


@pytest.mark.parametrize("first", [0, 1, CHUNK - 1, CHUNK, CHUNK + 9, DEEP + 3])
def test_chunks_end_where_they_would_without_a_turn_before(first):
    """So what a text computes depends on its length alone."""
    text = PagedText(pool_of(4_000), Retention(0, None), range(first))
    read(text)
    text.unread = list(range(2 * DEEP - first))
    assert set(read(text)) <= set(read(PagedText(pool_of(4_000), Retention(0, None), range(2 * DEEP))))


def test_a_window_holds_few_pages_and_a_text_all():
    for retention, most in ((Retention(4, 40), (4 + 40 + CHUNK) // 4 + 2), (Retention(0, None), 500)):
        pool = pool_of(1_000)
        text = PagedText(pool, retention, range(2_000))
        assert text.pages_needed(2_000) <= most
        while text.unread:
            count = len(text.chunk())
            text.make_room(count)
            assert text.held <= most
            text.advance(count)
        text.close()
        assert len(pool.free) == pool.count
