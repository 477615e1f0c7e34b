"""An engine on a small model, and what tests ask of it."""

import asyncio
import random

from ropewalk.serve.generation.engine import Engine
from ropewalk.serve.generation.model import ServedModel, served_extensions
from ropewalk.serve.generation.request import Request, Sampling

from hf.models import tiny
from serve.conftest import START
from serve.fake_engine import TEMPLATE, tokenizer

LINES = {
    "yarn": "yarn",
    "dynamic": "dynamic_yarn",
    "rerope": "rerope:window=10+log_n",
    "streaming": "streaming:window=24,n_sink=4",
}
SIZE = 32
DRAW = random.Random(0)
TEXTS = [tuple(DRAW.randrange(3, 101) for _ in range(length)) for length in (1, 7, 20, 300, 600, 300)]


class Letters:
    """A tokenizer of numbers, one letter each."""

    eos_token_id = 2

    def decode(self, ids, **_):
        return "".join(chr(300 + n) for n in ids)


def engine_of(host, *, limit=2**25, lines=LINES, request_factors=(), **options):
    served = served_extensions(host, lines, target_len=4096, request_factors=request_factors)
    model = ServedModel(host, served, size=SIZE, limit=limit)
    return Engine(model, Letters(), name="tiny", **options), model


def run(host, scenario, **options):
    """Run a scenario with a started engine; afterwards nothing is held but sessions."""
    engine, model = engine_of(host, **options)

    async def main():
        engine.start()
        try:
            return await scenario(engine)
        finally:
            await engine.close()

    try:
        return asyncio.run(asyncio.wait_for(main(), 300))
    finally:
        model.close()


def real_engine():
    """A started engine on a small model of random weights, with the tokenizer of Ropewalk's own model."""
    host = tiny("llama", vocab_size=2048, max_position_embeddings=512)
    lines = {START: START, "yarn:factor=4": "yarn:factor=4", "streaming": "streaming:window=252,n_sink=4"}
    model = ServedModel(host, served_extensions(host, lines, target_len=2048), size=64, limit=2**27)
    engine = Engine(model, tokenizer(TEMPLATE), name="default", max_waiting=1000)
    engine.start()
    return engine


async def answer(engine, request):
    tokens, text = [], ""
    generation = engine.generate(request)
    async for token in generation:
        tokens += [token] if token.id is not None else []
        text += token.text
    return tokens, text, token.finish_reason, generation.usage


async def ending(one):
    async for token in one:
        reason = token.finish_reason
    return reason


def held(engine):
    pool = engine._model.pool
    return pool.count - len(pool.free)


def greedy(count, **more):
    return Sampling(count, temperature=0, ignore_eos=True, **more)


async def say(engine, name, text, count=10, *, session="s", said=None, **more):
    """The next turn of a session, whose record has what was said."""
    before = engine.session_state(session)
    turns = (*(before.said if before else ()), said or text)
    sampling = greedy(count, logprobs=2, **more)
    return await answer(engine, Request(name, (text,), sampling, session, after=before, said=turns))


def require_agreement(engine, session="s"):
    """What was read is as long as what was said and answered, here where a text says itself."""
    state, stored = engine.session_state(session), engine._sessions._known[session]
    assert stored.turn is None
    assert stored.text.total == state.tokens
    assert stored.text.forgotten == state.forgotten
    return state
