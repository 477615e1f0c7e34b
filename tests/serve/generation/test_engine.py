"""The engine on a small model: answers are the same whoever else is served, and everything is released."""

import asyncio
import random

import pytest
import torch
from hf.models import tiny

import ropewalk as rw
from ropewalk.decoding import NBCE
from ropewalk.errors import Conflict, DoesNotFit, InvalidValue, Unreadable
from ropewalk.serve.generation.engine import Engine
from ropewalk.serve.generation.model.served_extension import served_extensions
from ropewalk.serve.generation.model.served_model import ServedModel
from ropewalk.serve.generation.request import QueueFull, Request, Sampling, SessionBusy, SessionGone
from ropewalk.serve.generation.run import Run
from ropewalk.serve.generation.sessions import Sessions

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


@pytest.fixture(scope="module")
def host():
    return tiny("llama", max_position_embeddings=1024)


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
        return asyncio.run(asyncio.wait_for(main(), 120))
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
            async for _ in engine.ask(request):
                break

        others = [gone(chance.choice(requests)) for _ in range(10)]
        together = (await asyncio.gather(*map(late, requests), *others))[: len(requests)]
        return alone, together, engine.state()

    alone, together, state = run(host, scenario, max_running=16)
    for (tokens, text, reason, _), (tokens_2, text_2, reason_2, _) in zip(alone, together, strict=True):
        assert (tokens, text, reason) == (tokens_2, text_2, reason_2)
    assert state.cached_tokens > 0


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
        with pytest.raises(InvalidValue, match="layer must be from 0 to 3"):
            await engine.attention("rerope", TEXTS[2], 4, 0)
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


# Sessions.


@pytest.mark.parametrize("name", ["rerope", "streaming", "dynamic"])
def test_a_session_continues_its_text(host, name):
    async def scenario(engine):
        one = await answer(engine, Request(name, (TEXTS[3],), greedy(10), session="s"))
        two = await answer(engine, Request(name, (TEXTS[2],), greedy(10), session="s"))
        whole = (*TEXTS[3], *(token.id for token in one[0]), *TEXTS[2])
        return two, await answer(engine, Request(name, (whole,), greedy(10)))

    two, whole = run(host, scenario)
    assert [token.id for token in two[0]] == [token.id for token in whole[0]]
    assert two[3].session_tokens == 300 + 10 + 20 + 10
    assert two[3].prompt_tokens == 20
    last = 24 + 4 if name == "streaming" else two[3].session_tokens
    assert two[3].forgotten_tokens == (max(0, 339 - last) if name == "streaming" else 0)


def test_a_session_that_forgets_holds_constant_memory(host):
    async def scenario(engine):
        pages = []
        for _ in range(12):
            await answer(engine, Request("streaming", (TEXTS[3],), greedy(20), session="endless"))
            pages.append(held(engine))
        return pages, engine.session_state("endless")

    pages, usage = run(host, scenario)
    assert max(pages[1:]) <= pages[0] + 1
    assert usage.session_tokens == 12 * 320


def test_a_saved_session_is_restored_bit_for_bit(host, tmp_path):
    request = Request("dynamic", (TEXTS[2],), greedy(15, logprobs=2), session="../a name/ü")

    async def begin(engine):
        await answer(engine, Request("dynamic", (TEXTS[4],), greedy(5), session=request.session))

    async def go_on(engine):
        assert engine.session_state(request.session).session_tokens == 600 + 5
        return (await answer(engine, request))[:3]

    async def both(engine):
        await begin(engine)
        return await go_on(engine)

    run(host, begin, sessions=tmp_path / "sessions")
    assert len(list((tmp_path / "sessions").iterdir())) == 1
    assert run(host, go_on, sessions=tmp_path / "sessions") == run(host, both)


def test_a_damaged_file_or_another_model_is_refused(host, tmp_path):
    async def begin(engine):
        await answer(engine, Request("rerope", (TEXTS[2],), greedy(5), session="s"))

    run(host, begin, sessions=tmp_path)
    other = tiny("llama", max_position_embeddings=1024, hidden_size=32)
    with pytest.raises(Conflict, match="was saved by another model"):
        run(other, begin, sessions=tmp_path)
    path = next(tmp_path.iterdir())
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(Unreadable, match="session 's' cannot be read"):
        run(host, begin, sessions=tmp_path)


def test_numbers_that_changed_on_the_disk_are_refused(host, tmp_path):
    async def begin(engine):
        await answer(engine, Request("rerope", (TEXTS[2],), greedy(5), session="s"))

    async def look(engine):
        return engine.session_state("s")

    run(host, begin, sessions=tmp_path)
    path = next(tmp_path.iterdir())
    data = bytearray(path.read_bytes())
    data[-40] ^= 1
    path.write_bytes(data)
    assert run(host, look, sessions=tmp_path).session_tokens == 25
    with pytest.raises(Unreadable, match="its numbers are not those that were saved"):
        run(host, begin, sessions=tmp_path)
    path.write_bytes(data[:100])
    with pytest.raises(Unreadable, match="session 's' cannot be read"):
        run(host, look, sessions=tmp_path)


def test_two_servers_do_not_share_a_folder(host, tmp_path):
    async def scenario(engine):
        with pytest.raises(Conflict, match="another server keeps its sessions in"):
            Sessions(engine._model, tmp_path)

    run(host, scenario, sessions=tmp_path)
    run(host, scenario, sessions=tmp_path)  # the folder is free again


def test_an_answer_that_fails_fails_alone(host, monkeypatch):
    choose = Run.choose

    def failing(self, token=None):
        if self.request.session == "bad":
            raise RuntimeError("no token")
        return choose(self, token)

    monkeypatch.setattr(Run, "choose", failing)

    async def scenario(engine):
        other = asyncio.create_task(answer(engine, Request("rerope", (TEXTS[2],), greedy(30))))
        with pytest.raises(RuntimeError, match="no token"):
            await answer(engine, Request("rerope", (TEXTS[1],), greedy(5), session="bad"))
        assert await engine.drop_session("bad")
        return await other

    assert len(run(host, scenario)[0]) == 30


def test_a_session_whose_first_request_was_refused_was_not_begun(host):
    async def scenario(engine):
        with pytest.raises(DoesNotFit):
            await answer(engine, Request("bare", (TEXTS[2],), greedy(5000), session="s"))
        return engine.session_state("s")

    assert run(host, scenario) is None


def test_sessions_that_rest_make_room_and_say_so(host):
    big = Request("rerope", (TEXTS[4],), greedy(20))

    async def scenario(engine):
        names = [f"s{n}" for n in range(6)]
        for name in names:
            text = tuple(DRAW.randrange(3, 101) for _ in range(600))
            await answer(engine, Request("rerope", (text,), greedy(20), session=name))
        await answer(engine, big)
        known = [name for name in names if name not in engine._sessions._gone]
        assert all(engine.session_state(name) for name in known)
        with pytest.raises(SessionGone):
            engine.session_state("s0")
        with pytest.raises(SessionGone):
            await answer(engine, Request("rerope", (TEXTS[1],), greedy(1), session="s0"))
        assert await engine.drop_session("s0")
        await answer(engine, Request("rerope", (TEXTS[1],), greedy(1), session="s0"))
        return known

    known = run(host, scenario, limit=3 * 2**20)
    assert known == [f"s{n}" for n in range(6 - len(known), 6)]
    assert 0 < len(known) < 6


def test_a_session_from_the_disk_takes_no_room_that_a_running_answer_needs(host, tmp_path):
    more = Request("rerope", (TEXTS[1],), greedy(1), session="s")

    async def scenario(engine):
        await answer(engine, Request("rerope", (TEXTS[4],), greedy(5), session="s"))
        most = engine._model.pool.count * engine._spaces["rerope"].per_slab * SIZE
        long = engine.ask(Request("rerope", (TEXTS[4],), greedy(most - 600 - SIZE)))
        deltas = aiter(long)
        await anext(deltas)
        assert len(list(tmp_path.iterdir())) == 1
        with pytest.raises(QueueFull, match="no memory is left for session 's'"):
            await answer(engine, more)
        reasons = [delta.finish_reason async for delta in deltas]
        return reasons[-1], await answer(engine, more)

    reason, (_, _, _, usage) = run(host, scenario, limit=2**20, sessions=tmp_path)
    assert reason == "length"
    assert usage.session_tokens == 600 + 5 + 7 + 1


def test_a_session_answers_one_request_at_a_time_and_keeps_its_extension(host):
    async def scenario(engine):
        first = asyncio.create_task(answer(engine, Request("rerope", (TEXTS[4],), greedy(50), session="s")))
        await asyncio.sleep(0.05)
        with pytest.raises(SessionBusy):
            await answer(engine, Request("rerope", (TEXTS[1],), greedy(1), session="s"))
        await first
        with pytest.raises(Conflict, match="under rerope, and cannot continue under yarn"):
            await answer(engine, Request("yarn", (TEXTS[1],), greedy(1), session="s"))
        return await answer(engine, Request("rerope", (TEXTS[1],), greedy(1), session="s"))

    assert run(host, scenario)[2] == "length"


# Limits.


def test_what_cannot_be_carried_is_refused_with_the_number(host):
    async def scenario(engine):
        with pytest.raises(DoesNotFit, match="the answer may have 125, together 1,025; bare carries 1,024"):
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
        answers = [engine.ask(Request("bare", (TEXTS[3],), greedy(30))) for _ in range(5)]
        with pytest.raises(QueueFull):
            engine.ask(Request("bare", (TEXTS[3],), greedy(30)))
        for one in answers:
            one.cancel()
        reasons = [await ending(one) for one in answers]
        return reasons, await answer(engine, Request("bare", (TEXTS[3],), greedy(3))), held(engine)

    reasons, (tokens, *_), pages = run(host, scenario, max_running=2, max_waiting=3)
    assert set(reasons) == {"cancelled"}
    assert len(tokens) == 3
    assert pages == 0


def test_requests_wait_for_room_and_are_all_answered(host):
    async def scenario(engine):
        requests = [Request(name, (TEXTS[4],), greedy(40)) for name in LINES for _ in range(6)]
        return await asyncio.gather(*(answer(engine, request) for request in requests)), held(engine)

    answers, pages = run(host, scenario, limit=2 * 2**20)
    assert [len(tokens) for tokens, *_ in answers] == [40] * 24
    assert pages == 0


def test_a_cancelled_answer_stops_within_a_token(host):
    async def scenario(engine):
        one = engine.ask(Request("bare", (TEXTS[2],), greedy(900)))
        seen = 0
        async for delta in one:
            seen += len(delta.tokens)
            if seen == 5:
                one.cancel()
        return delta.usage.completion_tokens, held(engine)

    made, pages = run(host, scenario)
    assert made < 100
    assert pages == 0


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
            engine.ask(Request("bare", (TEXTS[2],), greedy(1)))
        await closing
        return await running

    assert run(host, scenario)[2] == "length"
