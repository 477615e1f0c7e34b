"""The answers to one request: what a request leaves behind."""

import asyncio
from contextlib import closing, nullcontext
from types import SimpleNamespace

import pytest

from ropewalk.serve.generation.generation import Generation
from ropewalk.serve.generation.request import Request, Sampling, Token
from ropewalk.serve.refusals import ClientGone
from ropewalk.serve.responses import Generations
from ropewalk.serve.service import Metrics

REQUEST = Request("bare", ((1,),), Sampling(2))
TOKENS = (Token(1, text="a"), Token(2, text="b", finish_reason="stop"))


def engine_of(tokens):
    """An engine whose answers are some tokens at once; it notes its answers."""
    begun = []

    def generate(request, queue):
        generation = Generation(request, queue)
        begun.append(generation)
        for token in tokens:
            generation.put(token)
        return generation

    return SimpleNamespace(capacity=10, generate=generate), begun


async def stays():
    """A client that stays, and says nothing more."""
    await asyncio.Event().wait()


async def leaves():
    return {"type": "http.disconnect"}


@pytest.mark.parametrize(
    ("tokens", "receive", "raised"), [(TOKENS, stays, None), ((), leaves, ClientGone), (TOKENS, stays, KeyError)]
)
def test_nothing_of_a_request_goes_on_after_it(tokens, receive, raised):
    """Whether the answers were read to their end, the client has left, or the caller failed."""

    async def read():
        engine, begun = engine_of(tokens)
        generations = Generations(engine, [REQUEST, REQUEST], receive, Metrics())
        with pytest.raises(raised) if raised else nullcontext(), closing(generations):
            texts = [new[-1].text async for batch in generations.batches() for _, new in batch]
            assert sorted(texts) == ["a", "a", "b", "b"]
            if raised is KeyError:
                raise KeyError
        assert [one.cancelled for one in begun] == [not tokens] * 2  # what has ended need not be cancelled
        await asyncio.sleep(0)  # what is cancelled ends in its next turn
        return asyncio.all_tasks() - {asyncio.current_task()}

    assert asyncio.run(read()) == set()


def test_each_token_says_whose_it_is():
    async def read():
        engine, _ = engine_of(TOKENS)
        with closing(Generations(engine, [REQUEST] * 3, stays, Metrics())) as generations:
            await generations.wait_for_first(1.0)
            return [(n, new[0].id) async for batch in generations.batches() for n, new in batch]

    assert asyncio.run(read()) == [(n, id) for n in range(3) for id in (1, 2)]
