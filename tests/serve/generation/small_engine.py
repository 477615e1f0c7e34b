"""An engine on a small model, and what tests ask of it."""

import asyncio
import random

from ropewalk.serve.generation.engine import Engine
from ropewalk.serve.generation.model.served_extension import served_extensions
from ropewalk.serve.generation.model.served_model import ServedModel
from ropewalk.serve.generation.request import Sampling

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


def engine_of(host, *, limit=2**25, **options):
    model = ServedModel(host, served_extensions(host, LINES, target_len=4096), size=SIZE, limit=limit)
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


async def answer(engine, request):
    tokens, text = [], ""
    async for delta in engine.ask(request):
        tokens += delta.tokens
        text += delta.text
    return tokens, text, delta.finish_reason, delta.usage


async def ending(one):
    async for delta in one:
        reason = delta.finish_reason
    return reason


def held(engine):
    return sum(space.held for space in engine._spaces.values())


def greedy(count, **more):
    return Sampling(count, temperature=0, ignore_eos=True, **more)
