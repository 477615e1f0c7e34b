"""Texts and tokens: in a thread where they are long, and refused early where they are far too long."""

import asyncio
import time
from pathlib import Path
from threading import Event

import pytest

from ropewalk.errors import DoesNotFit
from ropewalk.serve import service as module
from ropewalk.serve.service import ServerTokenizer

from serve.conftest import call, running, sent, until
from serve.fake_engine import FakeEngine, tokenizer

PROSE = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text() * 12
ODD = "".join(map(chr, range(1, 0xD800, 7))) * 16 + "\U0001f9d1\u200d\U0001f680" * 1000


@pytest.fixture
def server_tokenizer():
    one = ServerTokenizer(tokenizer())
    yield one
    one.close()


@pytest.mark.sampled(cases=2)
@pytest.mark.parametrize("begins", [True, False])
@pytest.mark.parametrize("text", [PROSE, ODD, "x" * 120_000, " \n" * 60_000], ids=["prose", "odd", "x", "blank"])
def test_a_long_text_has_the_tokens_that_the_tokenizer_gives(server_tokenizer, text, begins):
    assert len(text) > module.SHORT
    expected = tuple(tokenizer()(text, add_special_tokens=begins, verbose=False)["input_ids"])
    assert asyncio.run(server_tokenizer.encode(text, begins=begins)) == expected
    assert asyncio.run(server_tokenizer.encode(text, begins=begins, most=len(expected))) == expected


def test_a_text_that_is_far_too_long_is_refused_before_it_is_read(server_tokenizer):
    begun = time.process_time()
    for text, most in (("x" * 10**7, 1000), ("ab " * 10**6, 5_000)):
        with pytest.raises(DoesNotFit, match=f"at most {most:,} tokens, got '{len(text):,} characters'; shorten it"):
            asyncio.run(server_tokenizer.encode(text, most=most))
    assert time.process_time() - begun < 1


def test_a_text_that_may_be_too_long_is_refused_after_its_first_pieces(server_tokenizer):
    counted = []
    read = server_tokenizer._tokenizer
    server_tokenizer._tokenizer = lambda text, **how: counted.append(len(text)) or read(text, **how)
    server_tokenizer._longest = 10**9  # so that its characters alone do not tell
    for text, most in (("x" * 10**7, 1000), ("x" * 10**6, 20_000), ("ab " * 10**6, 50_000)):
        with pytest.raises(DoesNotFit, match=f"at most {most:,} tokens, got '{len(text):,} characters'; shorten it"):
            asyncio.run(server_tokenizer.encode(text, most=most))
    assert sum(counted) < 600_000
    with pytest.raises(DoesNotFit, match="several requests of a session"):
        asyncio.run(server_tokenizer.encode("x" * 2_200_000))


def test_what_may_just_fit_is_read(server_tokenizer):
    assert len(asyncio.run(server_tokenizer.encode(PROSE, most=len(PROSE) // 2))) > 10_000


def test_nobody_counts_on_for_a_client_that_has_left(server_tokenizer):
    first, go_on, counted = Event(), Event(), []
    read = server_tokenizer._tokenizer

    def wait(text, **how):
        counted.append(text)
        first.set()
        assert go_on.wait(60)
        return read(text[:100], **how)

    async def leave():
        waiting = asyncio.create_task(server_tokenizer.encode("x" * 2_000_000))  # 40 pieces
        assert await asyncio.to_thread(first.wait, 60)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        go_on.set()
        return await server_tokenizer.encode("y" * 5_000)

    server_tokenizer._tokenizer = wait
    assert len(asyncio.run(leave())) > 0
    assert [len(text) for text in counted] == [module.PIECE, 5_000]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": "x " * 450_000}),
        ("/tokenize", {"prompt": "x " * 450_000}),
        ("/api/losses", {"text": "x " * 450_000, "models": ["default"]}),
    ],
)
def test_others_are_answered_while_a_long_text_is_read(path, body):
    with running(FakeEngine()) as server, sent(server, path, body):
        assert until(lambda: "wait_until_gone" in server.working())
        assert call(server, "POST", "/v1/completions", {"prompt": "short", "max_tokens": 2}).status == 200
