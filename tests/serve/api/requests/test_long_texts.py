"""Long texts are read in another process: the same tokens, refused early where they are far too many, and ended."""

import asyncio
import time
from pathlib import Path

import pytest

from ropewalk.errors import DoesNotFit
from ropewalk.serve.api.requests import texts as module
from ropewalk.serve.api.requests.texts import Texts

from serve.api.conftest import call, running, until
from serve.api.fake_engine import tokenizer
from serve.api.test_disconnect import sent

PROSE = (Path(__file__).parents[4] / "CONTRIBUTING.md").read_text() * 12
ODD = "".join(map(chr, range(1, 0xD800, 7))) * 16 + "\U0001f9d1\u200d\U0001f680" * 1000


@pytest.fixture
def texts():
    one = Texts(tokenizer())
    yield one
    one.close()


@pytest.mark.sampled(cases=2)
@pytest.mark.parametrize("begins", [True, False])
@pytest.mark.parametrize("text", [PROSE, ODD, "x" * 120_000, " \n" * 60_000], ids=["prose", "odd", "x", "blank"])
def test_a_long_text_has_the_tokens_that_the_tokenizer_gives(texts, text, begins):
    assert len(text) > module.LONG
    expected = tuple(tokenizer()(text, add_special_tokens=begins, verbose=False)["input_ids"])
    assert asyncio.run(texts.ids(text, begins=begins)) == expected
    assert asyncio.run(texts.ids(text, begins=begins, most=len(expected))) == expected


def test_a_text_that_is_far_too_long_is_refused_after_its_first_pieces(texts):
    begun = time.process_time()
    for text, most in (("x" * 10**7, 1000), ("x" * 10**6, 20_000), ("ab " * 10**6, 50_000)):
        with pytest.raises(DoesNotFit, match=f"at most {most:,} tokens, got '{len(text):,} characters'; shorten it"):
            asyncio.run(texts.ids(text, most=most))
    assert time.process_time() - begun < 5


def test_what_may_just_fit_is_read(texts):
    ids = asyncio.run(texts.ids(PROSE, most=len(PROSE) // 2))
    with pytest.raises(DoesNotFit, match="several requests of a session"):
        asyncio.run(texts.ids("x" * 2_200_000))
    assert len(ids) > 10_000


def reading(server):
    """The process that reads a long text now."""
    long = server.server.service.loaded().texts._long
    return long._process if long._reading is not None else None


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": "x" * 900_000}),
        ("/tokenize", {"prompt": "x " * 450_000}),
        ("/api/losses", {"text": "x " * 450_000, "models": ["default"]}),
    ],
)
def test_nobody_reads_on_for_a_client_that_has_left(path, body):
    with running() as server:
        with sent(server, path, {**body, **({} if "text" in body else {"model": "default"})}):
            assert until(lambda: reading(server), 20)
            process = reading(server)
            assert call(server, "POST", "/v1/completions", {"prompt": "short"}).status == 200
            assert process.poll() is None  # others are answered while it is read
        assert until(lambda: process.poll() is not None)
        assert until(lambda: server.working() == [])
        assert call(server, "POST", "/v1/completions", {"prompt": "x" * 110_000, "max_tokens": 1}).status == 200


def test_a_client_that_has_left_does_not_end_the_reading_of_another(texts):
    async def scenario():
        one = asyncio.create_task(texts.ids("x" * 900_000))
        other = asyncio.create_task(texts.ids("y" * 110_000))
        await asyncio.sleep(0.5)
        waiting = asyncio.create_task(texts.ids("z" * 900_000))
        await asyncio.sleep(0)
        waiting.cancel()
        one.cancel()
        return await other

    assert asyncio.run(scenario()) == tuple(tokenizer()("y" * 110_000, verbose=False)["input_ids"])


def test_the_process_ends_with_the_server():
    with running() as server:
        assert call(server, "POST", "/v1/completions", {"prompt": "x" * 110_000, "max_tokens": 1}).status == 200
        process = server.server.service.loaded().texts._long._process
        assert process.poll() is None
    assert process.poll() is not None
