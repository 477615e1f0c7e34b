"""The engine on a small model: answers are the same whoever else is served, and everything is released."""

import asyncio
import random

import pytest
import torch

import ropewalk as rw
from ropewalk.errors import DoesNotFit, InvalidValue
from ropewalk.methods.decoding import NBCE
from ropewalk.serve.generation.request import QueueFull, Request, Sampling

from serve.generation.small_engine import LINES, TEXTS, answer, ending, greedy, held, run


@pytest.mark.nightly
def test_answers_are_bit_for_bit_the_same_alone_and_among_others_that_come_and_go(host):
    chance = random.Random(1)
    cases = [(name, text, heat) for name in ("bare", *LINES) for text in TEXTS for heat in (0, 1)]
    counts = [chance.randrange(1, 30) for _ in cases]
    requests = [
        Request(name, (text,), Sampling(count, temperature=heat, seed=count, logprobs=3, ignore_eos=True))
        for (name, text, heat), count in zip(cases, counts, strict=True)
    ]

    async def scenario(engine):
        alone = [await answer(engine, request) for request in requests]

        async def late(request):
            await asyncio.sleep(chance.random() * 0.3)
            return await answer(engine, request)

        async def gone(request):
            async for _ in engine.generate(request):
                break

        others = [gone(chance.choice(requests)) for _ in range(10)]
        together = (await asyncio.gather(*map(late, requests), *others))[: len(requests)]
        return alone, together, engine.state()

    alone, together, state = run(host, scenario, max_running=16)
    for (tokens, text, reason, _), (tokens_2, text_2, reason_2, _) in zip(alone, together, strict=True):
        assert (tokens, text, reason) == (tokens_2, text_2, reason_2)
    assert state.steps > 0


@pytest.mark.sampled(cases=1)
@pytest.mark.parametrize("name", ["bare", *LINES])
def test_greedy_answers_are_those_of_the_extended_model(host, name):
    async def scenario(engine):
        return [await answer(engine, Request(name, (text,), greedy(20))) for text in TEXTS]

    answers = run(host, scenario)
    for text, (tokens, *_) in zip(TEXTS, answers, strict=True):
        line = LINES.get(name, rw.Extension())
        with rw.extended(host, line, mode="attention", target_len=None if name == "bare" else 4096):
            expected = [int(token) for token in rw.stream(host, torch.tensor([text]), max_new_tokens=20)]
        assert [token.id for token in tokens] == expected


def test_losses_are_those_of_the_extended_model(host):
    ids = torch.tensor([TEXTS[4]])

    async def scenario(engine):
        return await engine.losses("rerope", TEXTS[4])

    got = run(host, scenario)
    with rw.extended(host, LINES["rerope"], mode="attention"):
        expected = rw.score(host, ids)[0]
    assert got[0] is None
    torch.testing.assert_close(torch.tensor(got[1:]), expected, atol=1e-4, rtol=1e-4)


def test_attention_weights_are_those_of_the_extended_model(host):
    async def scenario(engine):
        return await engine.attention("rerope", TEXTS[2], 2, 1), held(engine)

    rows, pages = run(host, scenario)
    with rw.extended(host, LINES["rerope"], mode="attention"), torch.no_grad():
        expected = host(torch.tensor([TEXTS[2]]), output_attentions=True, use_cache=False).attentions[2][0, 1]
    for n, row in enumerate(rows):
        torch.testing.assert_close(torch.tensor(row), expected[n, : n + 1], atol=2e-5, rtol=1e-3)
    assert pages == 0


def test_several_contexts_are_answered_together(host):
    contexts, question = [list(TEXTS[2]), list(TEXTS[1]) * 3], list(TEXTS[1])
    prompts = (*(tuple(context + question) for context in contexts), tuple(question))

    async def scenario(engine):
        return await answer(engine, Request("bare", prompts, greedy(12), decoding=NBCE()))

    tokens, *_ = run(host, scenario)
    rows, last, expected = [question, *(context + question for context in contexts)], None, []
    for _ in range(12):
        with torch.no_grad():
            logp = torch.stack([host(torch.tensor([row])).logits[0, -1].float().log_softmax(-1) for row in rows])
        combined = NBCE().combine(logp, last)
        last = combined.chosen
        expected.append(int(combined.logp.argmax()))
        rows = [[*row, expected[-1]] for row in rows]
    assert [token.id for token in tokens] == expected


# Limits.


def test_what_cannot_be_carried_is_refused_with_the_number(host):
    async def scenario(engine):
        with pytest.raises(DoesNotFit, match="the answer may have 125, 1,025 in total; bare carries 1,024"):
            await answer(engine, Request("bare", (TEXTS[4] + TEXTS[3],), greedy(125)))
        with pytest.raises(DoesNotFit, match="the server's --cache-memory has room for about"):
            await answer(engine, Request("rerope", (TEXTS[4],), greedy(10**6)))
        with pytest.raises(InvalidValue, match="from 0 to 100"):
            await answer(engine, Request("bare", ((101,),), greedy(1)))
        with pytest.raises(InvalidValue, match="at least one token"):
            await answer(engine, Request("bare", ((),), greedy(1)))
        return held(engine)

    assert run(host, scenario) == 0


def test_the_queue_has_a_bound(host):
    async def scenario(engine):
        answers = [engine.generate(Request("bare", (TEXTS[3],), greedy(30))) for _ in range(5)]
        with pytest.raises(QueueFull):
            engine.generate(Request("bare", (TEXTS[3],), greedy(30)))
        for one in answers:
            one.cancel()
        reasons = [await ending(one) for one in answers]
        return reasons, await answer(engine, Request("bare", (TEXTS[3],), greedy(3))), held(engine)

    reasons, (tokens, *_), pages = run(host, scenario, max_running=2, max_waiting=3)
    assert set(reasons) == {"cancelled"}
    assert len(tokens) == 3
    assert pages == 0


@pytest.mark.nightly
def test_requests_wait_for_room_and_are_all_answered(host):
    async def scenario(engine):
        requests = [Request(name, (TEXTS[4],), greedy(40)) for name in LINES for _ in range(6)]
        return await asyncio.gather(*(answer(engine, request) for request in requests)), held(engine)

    answers, pages = run(host, scenario, limit=2 * 2**20)
    assert [len(tokens) for tokens, *_ in answers] == [40] * 24
    assert pages == 0


def test_a_cancelled_answer_stops_within_a_token(host):
    async def scenario(engine):
        one = engine.generate(Request("bare", (TEXTS[2],), greedy(900)))
        seen = 0
        async for _ in one:
            seen += 1
            if seen == 5:
                one.cancel()
        return one.usage.completion_tokens, held(engine)

    made, pages = run(host, scenario)
    assert made < 100
    assert pages == 0


@pytest.mark.nightly
def test_a_short_prompt_does_not_wait_for_a_long_one(host):
    """By steps, not by time: the short answer is whole while the long prompt is still being read."""
    long = Request("rerope", (TEXTS[4] * 20,), greedy(1))

    async def scenario(engine):
        done = []

        async def noted(name, request):
            await answer(engine, request)
            done.append(name)

        first = asyncio.create_task(noted("long", long))
        while not engine.state().prompt_tokens:
            await asyncio.sleep(0.001)
        await noted("short", Request("yarn", (TEXTS[2],), greedy(3)))
        await first
        return done

    assert run(host, scenario) == ["short", "long"]


def test_a_failing_step_ends_its_answers_and_the_engine_lives_on(host, monkeypatch):
    async def scenario(engine):
        def fail(parts):
            raise MemoryError("no memory")

        monkeypatch.setattr(engine._model, "step", fail)
        with pytest.raises(MemoryError):
            await answer(engine, Request("bare", (TEXTS[2],), greedy(3)))
        monkeypatch.undo()
        return await answer(engine, Request("bare", (TEXTS[2],), greedy(3))), held(engine)

    (tokens, *_), pages = run(host, scenario)
    assert len(tokens) == 3
    assert pages == 0


def test_closing_finishes_what_runs_and_refuses_what_comes(host):
    async def scenario(engine):
        running = asyncio.create_task(answer(engine, Request("bare", (TEXTS[2],), greedy(50))))
        await asyncio.sleep(0.02)
        closing = asyncio.create_task(engine.close(drain=30))
        await asyncio.sleep(0)
        with pytest.raises(QueueFull, match="stopping"):
            engine.generate(Request("bare", (TEXTS[2],), greedy(1)))
        await closing
        return await running

    assert run(host, scenario)[2] == "length"
