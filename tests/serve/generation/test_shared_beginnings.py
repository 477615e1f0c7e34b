"""What texts have in common is read once: all of it that is whole chunks, and nothing else."""

import pytest

from ropewalk.attention.layout.retention import Retention
from ropewalk.serve.generation.memory.page_space import PageSpace
from ropewalk.serve.generation.sequence import CHUNK, Sequence

from serve.generation.test_page_space import pool_of

TEXT = list(range(5 * CHUNK))


def read(sequence):
    """All of it, chunk by chunk."""
    while sequence.unread:
        count = len(sequence.chunk())
        sequence.make_room(count)
        sequence.advance(count)
    return sequence


@pytest.mark.parametrize("common", [CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 9, 3 * CHUNK])
def test_all_whole_chunks_of_a_common_beginning_are_reused(common):
    space = PageSpace(pool_of(2_000), 2)
    first = read(Sequence(space, Retention(0, None), TEXT))
    second = Sequence(space, Retention(0, None), TEXT[:common] + [-1] * 40)
    second.reuse()
    whole = common // CHUNK * CHUNK
    assert second.reused == second.length == whole
    assert second.pages.tolist() == first.pages[: len(second.pages)].tolist()
    later = read(second).pages[whole // second.size :]
    assert not set(later.tolist()) & set(first.pages.tolist())
