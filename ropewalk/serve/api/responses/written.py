"""The answers to one request while they are written: several at once, cancelled when their client has gone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from types import TracebackType
from typing import NamedTuple

from ropewalk.serve.api.metrics import Metrics
from ropewalk.serve.api.requests.body import Receive, disconnected
from ropewalk.serve.api.responses.errors import ClientGone, unavailable
from ropewalk.serve.generation.request import CANCELLED, Answer, Delta

LAST = 30.0  # seconds that a cancelled answer may take to end


class Numbered(NamedTuple):
    """A delta, and which of the answers it belongs to."""

    answer: int
    delta: Delta


_Item = Numbered | BaseException | None  # nothing: one answer has ended


class Answers:
    """The answers to one request. Leaving the block cancels what is still written, and waits until it has ended.

    async with Answers(answers, receive, metrics) as written:
        async for deltas in written.batches(): ...
    """

    def __init__(
        self,
        answers: Sequence[Answer],
        receive: Receive,
        metrics: Metrics,
    ) -> None:
        self._answers, self._receive, self._metrics = answers, receive, metrics
        self._waiting = asyncio.Queue[_Item]()
        self._began = time.perf_counter()
        self._first = list[_Item]()

    async def __aenter__(self) -> Answers:
        self._pumps = [asyncio.create_task(self._pump(n, answer)) for n, answer in enumerate(self._answers)]
        self._watch = asyncio.create_task(self._watched())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._watch.cancel()
        for answer, pump in zip(self._answers, self._pumps, strict=True):
            if not pump.done():
                answer.cancel()
        await asyncio.wait(self._pumps, timeout=LAST)
        for pump in self._pumps:
            pump.cancel()

    async def begun(self, seconds: float) -> None:
        """Wait until there is a delta, but not longer than that; a refusal is raised while a status can say it."""
        with suppress(asyncio.TimeoutError):
            self._first = [await asyncio.wait_for(self._waiting.get(), seconds)]
        if self._first and isinstance(self._first[0], BaseException):
            raise self._first[0]

    async def batches(self) -> AsyncIterator[list[Numbered]]:
        """All deltas that wait, as soon as there is one; the connection's end and failures are raised."""
        missing = len(self._answers)
        while missing:
            taken, self._first = self._first or [await self._waiting.get()], []
            while not self._waiting.empty():
                taken.append(self._waiting.get_nowait())
            missing -= sum(item is None for item in taken)
            batch = [item for item in taken if isinstance(item, Numbered)]
            if batch:
                yield batch
            for item in taken:
                if isinstance(item, BaseException):
                    raise item

    async def _pump(self, index: int, answer: Answer) -> None:
        """Hand on the deltas of one answer, and note when they came."""
        last = None
        try:
            async for delta in answer:
                last = self._timed(delta, last)
                if delta.finish_reason == CANCELLED:
                    self._waiting.put_nowait(unavailable("the answer was cut off: the server shuts down", seconds=30))
                else:
                    self._waiting.put_nowait(Numbered(index, delta))
        except Exception as error:
            self._waiting.put_nowait(error)
        finally:
            self._waiting.put_nowait(None)

    def _timed(self, delta: Delta, last: float | None) -> float | None:
        """Note the time since the last delta; a delta without tokens only ends the answer."""
        if not delta.tokens:
            return last
        now = time.perf_counter()
        if last is None:
            self._metrics.first_token.observe(now - self._began)
        else:
            self._metrics.between_tokens.observe((now - last) / len(delta.tokens))
        return now

    async def _watched(self) -> None:
        """Notice that the client has gone, even while the request waits in the queue."""
        await disconnected(self._receive)
        self._waiting.put_nowait(ClientGone())
