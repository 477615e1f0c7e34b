"""Sessions: a turn counts whole or not at all, so what was read and what was said are always of the same turns."""

import asyncio
from dataclasses import replace

import pytest

from ropewalk.errors import Conflict, DoesNotFit
from ropewalk.serve.generation.generation import Generation
from ropewalk.serve.generation.request import QueueFull, Request, SessionBusy, SessionGone

from serve.generation.small_engine import DRAW, SIZE, TEXTS, answer, ending, greedy, held, require_agreement, run, say

FIRST, LONG, LAST = TEXTS[3], TEXTS[4], TEXTS[2]


def text_of(length):
    return tuple(DRAW.randrange(3, 101) for _ in range(length))


@pytest.mark.parametrize("name", ["rerope", "streaming", "dynamic"])
def test_a_session_continues_its_text(host, name):
    async def scenario(engine):
        one = await say(engine, name, FIRST)
        two = await say(engine, name, LAST)
        state = require_agreement(engine)
        assert state.said == (FIRST, LAST)
        assert state.answer == tuple(token.id for token in two[0])
        whole = (*FIRST, *(token.id for token in one[0]), *LAST)
        return two, await answer(engine, Request(name, (whole,), greedy(10)))

    two, whole = run(host, scenario)
    assert [token.id for token in two[0]] == [token.id for token in whole[0]]
    assert two[3].session_tokens == 300 + 10 + 20 + 10
    assert two[3].prompt_tokens == 20
    last = 24 + 4 if name == "streaming" else two[3].session_tokens
    assert two[3].forgotten_tokens == (max(0, 339 - last) if name == "streaming" else 0)


@pytest.mark.nightly
def test_a_session_that_forgets_holds_constant_memory(host):
    async def scenario(engine):
        pages = []
        for _ in range(12):
            await say(engine, "streaming", FIRST, 20)
            pages.append(held(engine))
        return pages, engine.session_state("s")

    pages, state = run(host, scenario)
    assert max(pages[1:]) <= pages[0] + 1
    assert state.tokens == 12 * 320


# A turn that fails: each stage, under each kind of memory.


async def leave(engine, name, *, at):
    """A turn whose client goes once so many tokens were read by the model."""
    before, steps = engine.session_state("s"), engine.state().steps
    one = engine.generate(Request(name, (LONG,), greedy(60), "s", after=before, said=("lost",)))
    while engine.state().steps < steps + at:
        await asyncio.sleep(0)
    one.cancel()
    assert await ending(one) == "cancelled"


async def step_fails(engine, name, monkeypatch, *, at):
    """A turn in which the model raises at a step."""
    whole, done = engine._model.step, []

    def step(parts):
        done.append(parts)
        if len(done) == at:
            raise MemoryError("no memory")
        return whole(parts)

    monkeypatch.setattr(engine._model, "step", step)
    with pytest.raises(MemoryError):
        await say(engine, name, LONG, 60, said="lost")
    monkeypatch.undo()


async def choice_fails(engine, name, monkeypatch, *, at):
    """A turn in which a token cannot be chosen, or not be written."""
    choose, done = Generation.choose, []

    def failing(self, token=None):
        done.append(token)
        if len(done) == at:
            raise RuntimeError("no token")
        return choose(self, token)

    monkeypatch.setattr(Generation, "choose", failing)
    with pytest.raises(RuntimeError):
        await say(engine, name, LONG, 60, said="lost")
    monkeypatch.undo()


async def waits_in_vain(engine, name):
    """A turn whose client goes while it waits in the queue."""
    others = [asyncio.create_task(answer(engine, Request("bare", (LONG,), greedy(40)))) for _ in range(2)]
    while engine.state().running < 2:
        await asyncio.sleep(0)
    one = engine.generate(Request(name, (LONG,), greedy(60), "s", after=engine.session_state("s"), said=("lost",)))
    one.cancel()
    assert [token.finish_reason async for token in one] == ["cancelled"]
    await asyncio.gather(*others)


async def refused(engine, name):
    with pytest.raises(DoesNotFit):
        await say(engine, name, LONG, 10**7, said="lost")


async def leaves_and_fails(engine, name, monkeypatch):
    """A client goes before the very step that fails, which somebody else waits for."""
    one = engine.generate(Request(name, (LONG,), greedy(60), "s", after=engine.session_state("s"), said=("lost",)))
    whole = engine._model.step

    def step(parts):
        if len(parts) == 1 and parts[0].extension == "bare":
            raise MemoryError("no memory")
        one.cancel()
        return whole(parts)

    monkeypatch.setattr(engine._model, "step", step)
    other = asyncio.create_task(answer(engine, Request("bare", (TEXTS[1],), greedy(30))))
    assert [token.finish_reason async for token in one][-1] == "cancelled"
    with pytest.raises(MemoryError):
        await other
    monkeypatch.undo()


STAGES = {
    "refused": lambda engine, name, patch: refused(engine, name),
    "in the queue": lambda engine, name, patch: waits_in_vain(engine, name),
    "left at the first chunk": lambda engine, name, patch: leave(engine, name, at=1),
    "left while reading": lambda engine, name, patch: leave(engine, name, at=2),
    "left while writing": lambda engine, name, patch: leave(engine, name, at=20),
    "the first chunk fails": lambda engine, name, patch: step_fails(engine, name, patch, at=1),
    "a later chunk fails": lambda engine, name, patch: step_fails(engine, name, patch, at=3),
    "a token's step fails": lambda engine, name, patch: step_fails(engine, name, patch, at=30),
    "the first choice fails": lambda engine, name, patch: choice_fails(engine, name, patch, at=1),
    "a later choice fails": lambda engine, name, patch: choice_fails(engine, name, patch, at=15),
    "left before a step that fails": leaves_and_fails,
}
STAGED = [(stage, name) for stage in STAGES for name in ("rerope", "streaming", "dynamic")]
STAGED.remove(("refused", "streaming"))  # which carries any length


@pytest.mark.sampled(cases=2)
@pytest.mark.parametrize(("stage", "name"), STAGED)
def test_a_turn_that_fails_never_was(host, monkeypatch, stage, name):
    async def scenario(engine):
        await say(engine, name, FIRST, session="fresh")
        await say(engine, name, FIRST)
        before, pages = require_agreement(engine), held(engine)
        await STAGES[stage](engine, name, monkeypatch)
        assert require_agreement(engine) is before
        assert held(engine) == pages
        after = await say(engine, name, LAST)
        state = require_agreement(engine)
        assert (state.tokens, state.said) == (300 + 10 + 20 + 10, (FIRST, LAST))
        return after, await say(engine, name, LAST, session="fresh")

    after, fresh = run(host, scenario, max_running=2)
    assert after == fresh


@pytest.mark.nightly
@pytest.mark.parametrize("stage", [stage for stage in STAGES if stage != "in the queue"])
def test_a_first_turn_that_fails_begins_nothing(host, monkeypatch, stage):
    async def scenario(engine):
        await STAGES[stage](engine, "rerope", monkeypatch)
        assert engine.session_state("s") is None
        assert (len(engine._sessions), held(engine)) == (0, 0)
        return await say(engine, "rerope", LAST), await say(engine, "rerope", LAST, session="fresh")

    one, fresh = run(host, scenario)
    assert one == fresh


def test_a_prompt_continues_the_state_that_it_was_made_for(host):
    """Two requests that saw the same session: only one of them continues it."""

    async def scenario(engine):
        await say(engine, "rerope", FIRST)
        request = Request("rerope", (LAST,), greedy(5), "s", after=engine.session_state("s"))
        await answer(engine, request)
        for other in (request, replace(request, after=None)):
            with pytest.raises(SessionBusy):
                await answer(engine, other)
        assert await engine.drop_session("s")
        with pytest.raises(SessionGone):
            await answer(engine, request)
        return engine.session_state("s")

    assert run(host, scenario) is None


def test_a_session_answers_one_request_at_a_time_and_keeps_its_extension(host):
    async def scenario(engine):
        await say(engine, "rerope", TEXTS[1])
        first = asyncio.create_task(say(engine, "rerope", LONG, 50))
        await asyncio.sleep(0.05)
        with pytest.raises(SessionBusy):
            await say(engine, "rerope", TEXTS[1])
        with pytest.raises(SessionBusy):
            await engine.drop_session("s")
        await first
        with pytest.raises(Conflict, match="uses rerope, and cannot continue under yarn"):
            await say(engine, "yarn", TEXTS[1])
        return await say(engine, "rerope", TEXTS[1])

    assert run(host, scenario)[2] == "length"


def test_a_session_is_busy_from_its_first_turn_on(host):
    async def scenario(engine):
        first = asyncio.create_task(say(engine, "rerope", LONG, 50))
        while not engine.state().running:
            await asyncio.sleep(0)
        with pytest.raises(SessionBusy):
            engine.session_state("s")
        await first
        return engine.session_state("s").tokens

    assert run(host, scenario) == 650


# Room.


@pytest.mark.nightly
def test_sessions_that_rest_make_room(host):
    async def scenario(engine):
        names = [f"s{n}" for n in range(6)]
        for name in names:
            await say(engine, "rerope", text_of(600), 20, session=name)
        old = engine.session_state("s5")
        await answer(engine, Request("rerope", (LONG,), greedy(20)))
        known = [name for name in names if engine.session_state(name)]
        for _ in range(2):
            await answer(engine, Request("rerope", (text_of(980),), greedy(20)))
        with pytest.raises(SessionGone):
            await answer(engine, Request("rerope", (TEXTS[1],), greedy(1), session="s0", after=old))
        await answer(engine, Request("rerope", (TEXTS[1],), greedy(1), session="s0"))  # begun again
        assert engine.session_state("s0").tokens == 8
        return known

    known = run(host, scenario, limit=3 * 2**20)
    assert known == [f"s{n}" for n in range(6 - len(known), 6)]
    assert 0 < len(known) < 6


def test_a_turn_for_which_there_is_no_room_beside_its_session_is_refused(host):
    """And does not wait for ever for what its own session holds."""

    async def scenario(engine):
        most = engine._model.pool.count * SIZE
        await say(engine, "rerope", text_of(most - 200))
        with pytest.raises(DoesNotFit, match="room for about"):
            await asyncio.wait_for(say(engine, "rerope", text_of(400)), 20)
        return require_agreement(engine).tokens - (most - 200)

    assert run(host, scenario, limit=2**20) == 10


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["streaming", "rerope"])
def test_turns_of_many_sessions_find_the_room_that_was_reserved(host, name):
    """All at once, in a memory for a few: some are evicted, some refused for now, and nobody waits for ever."""

    async def scenario(engine):
        refusals = []

        async def turns(session):
            for length in (200, 20, 300):
                try:
                    await say(engine, name, text_of(length), 5, session=session)
                except (SessionGone, QueueFull) as refusal:
                    refusals.append(type(refusal))

        await asyncio.gather(*(turns(f"s{n}") for n in range(6)))
        for session in list(engine._sessions._known):
            require_agreement(engine, session)
            assert await engine.drop_session(session)
        return held(engine), refusals

    limit = 2**20 if name == "rerope" else 3 * 2**19
    pages, refusals = run(host, scenario, limit=limit)
    assert pages == 0
    if name == "rerope":  # which forgets nothing
        assert refusals
    else:  # a turn fits beside all others, and only what nobody reads meanwhile has to make room
        assert set(refusals) <= {SessionGone}


def test_an_answer_that_fails_fails_alone(host, monkeypatch):
    choose = Generation.choose

    def failing(self, token=None):
        if self.request.session == "bad":
            raise RuntimeError("no token")
        return choose(self, token)

    monkeypatch.setattr(Generation, "choose", failing)

    async def scenario(engine):
        other = asyncio.create_task(answer(engine, Request("rerope", (LAST,), greedy(30))))
        with pytest.raises(RuntimeError, match="no token"):
            await say(engine, "rerope", TEXTS[1], session="bad")
        assert not await engine.drop_session("bad")
        return await other

    assert len(run(host, scenario)[0]) == 30


def test_what_a_turn_held_is_given_back_with_its_session(host):
    async def scenario(engine):
        for _ in range(3):
            await say(engine, "dynamic", text_of(150))
        assert await engine.drop_session("s")
        return held(engine)

    assert run(host, scenario) == 0
