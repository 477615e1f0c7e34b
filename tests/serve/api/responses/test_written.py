"""The answers to one request, as tasks: what a request leaves behind."""

import asyncio
from contextlib import nullcontext

import pytest

from ropewalk.serve.api.metrics import Metrics
from ropewalk.serve.api.responses.errors import ClientGone
from ropewalk.serve.api.responses.written import Answers
from ropewalk.serve.generation.request import Delta


class Written:
    """An answer of a few deltas, or one that ends only when it is cancelled."""

    def __init__(self, deltas=()):
        self.deltas, self.cancelled = deltas, asyncio.Event()

    async def __aiter__(self):
        for delta in self.deltas:
            yield delta
        if not self.deltas:
            await self.cancelled.wait()

    def cancel(self):
        self.cancelled.set()


async def nothing():
    """A client that stays, and says nothing more."""
    await asyncio.Event().wait()


async def leaves():
    return {"type": "http.disconnect"}


DELTAS = (Delta("a", ()), Delta("b", (), "stop"))


@pytest.mark.parametrize(
    ("deltas", "receive", "raised"), [(DELTAS, nothing, None), ((), leaves, ClientGone), (DELTAS, nothing, KeyError)]
)
def test_nothing_of_a_request_goes_on_after_it(deltas, receive, raised):
    """Whether the answers were read to their end, the client has left, or the caller failed."""

    async def read():
        async with Answers([Written(deltas), Written(deltas)], receive, Metrics()) as written:
            texts = [each.delta.text async for batch in written.batches() for each in batch]
            if raised is KeyError:
                raise KeyError
        assert sorted(texts) == ["a", "a", "b", "b"]

    async def left():
        with pytest.raises(raised) if raised else nullcontext():
            await read()
        await asyncio.sleep(0)  # what is cancelled ends in its next turn
        return asyncio.all_tasks() - {asyncio.current_task()}

    assert asyncio.run(left()) == set()
