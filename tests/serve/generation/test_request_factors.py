"""A factor for each request: the smallest that covers its prompt and its answer, static for all of its tokens."""

import asyncio

import pytest
import torch

import ropewalk as rw
from ropewalk.errors import DoesNotFit, InvalidValue
from ropewalk.serve.generation.model import served_extensions
from ropewalk.serve.generation.request import Request

from hf.models import tiny
from serve.generation.small_engine import DRAW, SIZE, answer, greedy, held, require_agreement, run, say

TRAINED, FACTORS = 256, (1, 2, 4)
ROUNDING = 2e-3  # of a loss in float32 by this model, whose logits are large: chunks of a text against all at once
LINES = {"dynamic": "dynamic_yarn", "yarn": "yarn:factor=4"}
STOPS = tuple(chr(300 + n) for n in range(200))  # texts of all tokens: an answer ends after one
PROMPTS = {1: (200, 246), 2: (247, 300, 502), 4: (503, 900)}  # prompts whose answers have ten tokens, by their factor


@pytest.fixture(scope="module")
def host():
    return tiny("llama", max_position_embeddings=TRAINED)


def text_of(length):
    return tuple(DRAW.randrange(3, 101) for _ in range(length))


def losses_under(host, line, ids):
    """What the static extension computes of a whole text."""
    with rw.extended(host, line):
        return rw.score(host, torch.tensor([ids]))[0]


def serve(host, scenario, **options):
    return run(host, scenario, lines=LINES, request_factors=FACTORS, **options)


@pytest.mark.nightly
def test_requests_of_a_batch_have_each_the_smallest_factor_that_covers_them(host):
    texts = [(factor, text_of(length)) for factor, lengths in PROMPTS.items() for length in lengths]

    async def scenario(engine):
        sampling = greedy(10, logprobs=0)
        requests = [Request("dynamic", (text,), sampling, prompt_logprobs=True) for _, text in texts]
        generations = [engine.generate(request) for request in requests]
        await asyncio.gather(*[drain(one) for one in generations])
        return [([*one.prompt[1:]], one.answer) for one in generations]

    async def drain(generation):
        async for _ in generation:
            pass

    for (factor, text), (prompt, written) in zip(texts, serve(host, scenario), strict=True):
        assert len(written) == 10
        got = torch.tensor([-token.logprob for token in prompt])
        expected = losses_under(host, f"yarn:factor={factor}", [*text, *written])
        torch.testing.assert_close(got, expected[: len(got)], atol=ROUNDING, rtol=1e-4)
        others = [losses_under(host, f"yarn:factor={other}", text) for other in FACTORS if other != factor]
        assert all((got - other).abs().max() > 20 * ROUNDING for other in others)


def require_greedy(host, said, factors):
    """Each turn of a session wrote what the static extension of its factor writes after all that was said before."""
    whole = []
    for factor, (text, written) in zip(factors, said, strict=True):
        whole += text
        for token in written:
            with rw.extended(host, f"yarn:factor={factor}"), torch.no_grad():
                assert int(host(torch.tensor([whole]), use_cache=False).logits[0, -1].argmax()) == token
            whole.append(token)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("turns", "factors"),
    [([(200, 10, ()), (100, 10, ()), (8, 4, ())], (1, 2, 2)), ([(200, 600, STOPS), (8, 4, ())], (4, 4))],
    ids=["is read again", "never goes back"],
)
def test_a_session_that_outgrows_its_factor(host, turns, factors):
    async def scenario(engine):
        said, pages, extensions = [], [], []
        for length, count, stop in turns:
            text = text_of(length)
            tokens, _, _, usage = await say(engine, "dynamic", text, count, stop=stop)
            extensions.append(usage.extension)
            said.append((text, [token.id for token in tokens]))
            pages.append((held(engine), -(-(require_agreement(engine).tokens - 1) // SIZE)))
        await engine.drop_session("s")
        return said, pages, extensions, held(engine)

    said, pages, extensions, left = serve(host, scenario)
    assert extensions == [f"dynamic to {factor * TRAINED}" for factor in factors]
    require_greedy(host, said, factors)
    assert all(pages_held == needed for pages_held, needed in pages)
    assert left == 0


def test_a_large_limit_of_the_answer_decides_too(host):
    text = text_of(100)

    async def scenario(engine):
        generation = engine.generate(Request("dynamic", (text,), greedy(600, logprobs=0), prompt_logprobs=True))
        await anext(aiter(generation))
        generation.cancel()
        return generation.prompt[1:]

    got = torch.tensor([-token.logprob for token in serve(host, scenario)])
    torch.testing.assert_close(got, losses_under(host, "yarn:factor=4", text), atol=ROUNDING, rtol=1e-4)


def test_what_no_factor_covers_is_refused(host):
    async def scenario(engine):
        assert sorted(engine.extensions) == ["bare", "dynamic", "yarn"]
        assert engine.extensions["dynamic"].max_len == 1024
        with pytest.raises(DoesNotFit, match="dynamic carries 1,024"):
            await answer(engine, Request("dynamic", (text_of(1020),), greedy(5)))

    serve(host, scenario)


def test_a_session_is_refused_where_reading_it_again_has_no_room(host):
    async def scenario(engine):
        await say(engine, "dynamic", text_of(200), 10)
        with pytest.raises(DoesNotFit, match="--cache-memory"):
            await say(engine, "dynamic", text_of(100), 10)
        return require_agreement(engine).tokens, held(engine)

    pages = 16
    page = 32 * 2 * 2 * 16 * 4 * 4  # tokens, lanes, key heads, their size, bytes, layers
    assert serve(host, scenario, limit=pages * page) == (210, 7)


@pytest.mark.parametrize("factors", [(2, 2), (4, 1), (0.5, 1), (float("nan"),), (1, float("inf"))])
def test_factors_grow_from_one(host, factors):
    with pytest.raises(InvalidValue, match="growing numbers of at least 1"):
        served_extensions(host, LINES, request_factors=factors)


def test_factors_need_a_dynamic_extension(host):
    with pytest.raises(DoesNotFit, match="none is served; serve one, such as dynamic_yarn"):
        served_extensions(host, {"yarn": "yarn:factor=4"}, request_factors=FACTORS)
