"""Send answers: as a stream of events, or whole."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ropewalk.serve.api.responses.compact_json import compact_json
from ropewalk.serve.api.responses.errors import ClientGone, refusal_of
from ropewalk.serve.api.responses.shapes import Shape, event
from ropewalk.serve.api.responses.written import Answers
from ropewalk.serve.generation.request import Delta, Usage

DONE = b"data: [DONE]\n\n"
PROMPTLY = 1.0  # seconds within which a refusal is a status; after that it is an event of the stream
LOG = logging.getLogger("ropewalk.serve")


class EventStream(Response):
    """Answers as server-sent events: what waits together is written together."""

    media_type = "text/event-stream"

    def __init__(self, answers: Answers, shape: Shape, count: int) -> None:
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._answers, self._shape, self._count = answers, shape, count

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Write until the last answer has ended."""
        async with self._answers:
            await self._answers.begun(PROMPTLY)
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            try:
                async for data in self._events():
                    await send({"type": "http.response.body", "body": data, "more_body": True})
            except ClientGone:
                return
            except Exception as error:
                LOG.error("a stream ended by %s", type(error).__name__)
                await send({"type": "http.response.body", "body": event(refusal_of(error).body()), "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _events(self) -> AsyncIterator[bytes]:
        shape, usages = self._shape, dict[int, Usage]()
        opening = shape.opening(self._count)
        yield b"".join(shape.event([choice]) for choice in opening)
        async for deltas in self._answers.batches():
            for index, delta in deltas:
                if delta.usage is not None:
                    usages[index] = delta.usage
            yield b"".join(shape.event([shape.choice(*numbered)]) for numbered in deltas)
        yield self._ending([usages[n] for n in sorted(usages)])

    def _ending(self, usages: list[Usage]) -> bytes:
        if not self._shape.shows_usage:
            return DONE
        return self._shape.event([], self._shape.usage(usages)) + DONE


async def whole(answers: Answers, shape: Shape, count: int) -> Response:
    """Answers as one body."""
    deltas: list[list[Delta]] = [[] for _ in range(count)]
    async with answers:
        async for batch in answers.batches():
            for index, delta in batch:
                deltas[index].append(delta)
    return Response(compact_json(shape.body(deltas)), media_type="application/json")
