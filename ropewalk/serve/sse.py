"""Send answers, whole or as server-sent events, and cancel them when their client has gone."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

from starlette.responses import Response, StreamingResponse
from starlette.types import Receive

from ropewalk.errors import DoesNotFit
from ropewalk.serve.body import wait_until_gone
from ropewalk.serve.generation.request import CANCELLED, Request, Token, Usage
from ropewalk.serve.metrics import Metrics
from ropewalk.serve.refusals import ClientGone, refusal_of, unavailable
from ropewalk.serve.responses import Format, compact_json, usage_of

if TYPE_CHECKING:  # with torch, which is loaded beside the server
    from ropewalk.serve.generation.engine import Engine
    from ropewalk.serve.generation.generation import Generation, Queue

PROMPTLY = 1.0  # seconds within which a refusal is a status; after that it is an event of the stream
LOG = logging.getLogger("ropewalk.serve")


class Generations:
    """The answers to one HTTP request. They are cancelled when they are closed, and when their client leaves."""

    def __init__(self, engine: Engine, requests: Sequence[Request], receive: Receive, metrics: Metrics) -> None:
        if len(requests) > engine.capacity:
            rule = f"at most {engine.capacity:,} answers in all, as many as may run and wait here"
            raise DoesNotFit("n", rule, f"{len(requests):,}", remedy="send fewer prompts, or a smaller n")
        self._metrics, self._began = metrics, time.perf_counter()
        self._queue: Queue = asyncio.Queue()
        self._numbers: dict[Generation, int] = {}  # which answer each of them is
        self._last: dict[Generation, float] = {}  # when its last token came
        self._watching = asyncio.create_task(self._watch(receive))
        try:  # begin all, or none
            for number, request in enumerate(requests):
                self._numbers[engine.generate(request, self._queue)] = number
        except BaseException:
            self.close()
            raise

    @property
    def usages(self) -> list[Usage]:
        """What the answers cost, once they have ended."""
        return [generation.usage for generation in self._numbers if generation.usage is not None]

    def __len__(self) -> int:
        return len(self._numbers)

    def close(self) -> None:
        """Cancel what is still written."""
        self._watching.cancel()
        for generation in self._numbers:
            if not generation.finished:
                generation.cancel()

    async def _watch(self, receive: Receive) -> None:
        """Notice that the client has gone, even while the request waits in the queue."""
        await wait_until_gone(receive)
        self._queue.put_nowait((next(iter(self._numbers)), ClientGone()))
        self.close()

    async def begun(self, seconds: float) -> None:
        """Wait for the first token, but not longer than that. A refusal is raised while a status can say it."""
        with suppress(asyncio.TimeoutError):
            waiting = [await asyncio.wait_for(self._queue.get(), seconds)]
            waiting += [self._queue.get_nowait() for _ in range(self._queue.qsize())]
            for item in waiting:
                self._queue.put_nowait(item)
            if isinstance(waiting[0][1], BaseException):
                raise waiting[0][1]

    async def batches(self) -> AsyncIterator[list[tuple[int, list[Token]]]]:
        """All tokens that wait, as soon as there is one, each with the number of its answer. Failures are raised.

        The first token of an answer comes with those of its prompt, where they were asked for.
        """
        missing = len(self._numbers)
        while missing:
            waiting = [await self._queue.get()]
            waiting += [self._queue.get_nowait() for _ in range(self._queue.qsize())]
            batch, failure = list[tuple[int, list[Token]]](), None
            for generation, token in waiting:
                if isinstance(token, BaseException):
                    failure = token
                elif token.finish_reason == CANCELLED:
                    failure = unavailable("the answer was cut off: the server shuts down", seconds=30)
                else:
                    missing -= token.finish_reason is not None
                    batch.append((self._numbers[generation], [*generation.prompt, token]))
                    generation.prompt = []
                    self._time(generation, token)
            if batch:
                yield batch
            if failure is not None:
                raise failure

    def _time(self, generation: Generation, token: Token) -> None:
        """Note the time since the last token."""
        if token.id is None:
            return
        now = time.perf_counter()
        if generation in self._last:
            self._metrics.between_tokens.observe(now - self._last[generation])
        else:
            self._metrics.first_token.observe(now - self._began)
        self._last[generation] = now


async def send_whole(generations: Generations, format: Format) -> Response:
    """Answers as one body."""
    answers: list[list[Token]] = [[] for _ in range(len(generations))]
    with closing(generations):
        async for batch in generations.batches():
            for number, new in batch:
                answers[number] += new
    return Response(compact_json(format.body(answers, generations.usages)), media_type="application/json")


async def send_events(generations: Generations, format: Format) -> Response:
    """Answers as server-sent events: what waits together is written together."""
    try:
        await generations.begun(PROMPTLY)
    except BaseException:
        generations.close()
        raise
    headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
    return StreamingResponse(_events(generations, format), media_type="text/event-stream", headers=headers)


async def _events(generations: Generations, format: Format) -> AsyncIterator[bytes]:
    with closing(generations):
        try:
            opening = [choice for index in range(len(generations)) if (choice := format.opening(index))]
            yield b"".join(event(format.chunk([choice])) for choice in opening)
            async for batch in generations.batches():
                shown = [(n, new) for n, new in batch if new[-1].text or new[-1].finish_reason or format.logprobs]
                yield b"".join(event(format.chunk([format.choice(n, new, whole=False)])) for n, new in shown)
            usage = event(format.chunk([], usage_of(generations.usages, format.n))) if format.shows_usage else b""
            yield usage + b"data: [DONE]\n\n"
        except ClientGone:
            return
        except Exception as error:
            LOG.error("a stream ended by %s", type(error).__name__)
            yield event(refusal_of(error).body())


def event(value: dict[str, Any]) -> bytes:
    """A server-sent event."""
    return b"data: " + compact_json(value).encode() + b"\n\n"
