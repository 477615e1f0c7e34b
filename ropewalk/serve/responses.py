"""Answers in OpenAI's two formats, sent whole or as server-sent events, and cancelled when their client has gone."""

from __future__ import annotations

import asyncio
import json
import logging
import time
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.responses import Response, StreamingResponse
from starlette.types import Receive

from ropewalk.errors import DoesNotFit
from ropewalk.hf.checkpoint.tokens import INCOMPLETE, MOST_WAITING
from ropewalk.serve.generation.request import CANCELLED, Request, Token, Usage
from ropewalk.serve.refusals import ClientGone, refusal_of, unavailable
from ropewalk.serve.requests import ChatRequest, CompletionRequest, wait_until_gone
from ropewalk.serve.service import Metrics

if TYPE_CHECKING:  # with torch, which is loaded beside the server
    from ropewalk.serve.generation.engine import Engine
    from ropewalk.serve.generation.generation import Generation, Queue

LOWEST = -9999.0  # JSON has no infinity
PROMPTLY = 1.0  # seconds within which a refusal is a status; after that it is an event of the stream
LOG = logging.getLogger("ropewalk.serve")

Decode = Callable[[Sequence[int]], str]


def compact_json(value: Any) -> str:
    """A value as JSON without spaces."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


class Format:
    """One response: its chunks while it is streamed, or its body."""

    prefix, kind, chunk_kind = "", "", ""

    def __init__(self, model: str, fields: CompletionRequest | ChatRequest, decode: Decode) -> None:
        self.n, self.streams, self.shows_usage = fields.n, fields.stream, fields.include_usage
        self.logprobs = fields.logprobs is not None and fields.logprobs is not False  # a completion's may be 0
        self._decode = decode
        self._head = {"id": f"{self.prefix}-{uuid.uuid4().hex}", "created": int(time.time()), "model": model}

    def opening(self, index: int) -> dict[str, Any] | None:
        """The choice of a stream before the first token, if there is one."""
        return None

    def choice(self, index: int, tokens: Sequence[Token], *, whole: bool) -> dict[str, Any]:
        """The new tokens of an answer in a chunk, or all of them in a body."""
        raise NotImplementedError

    def chunk(self, choices: list[dict[str, Any]], usage: dict[str, Any] | None = None) -> dict[str, Any]:
        """One chunk of a stream."""
        shown = {"usage": usage} if self.shows_usage else {}
        return {**self._head, "object": self.chunk_kind, "choices": choices, **shown}

    def body(self, answers: Sequence[Sequence[Token]], usages: Sequence[Usage]) -> dict[str, Any]:
        """The whole response."""
        choices = [self.choice(index, tokens, whole=True) for index, tokens in enumerate(answers)]
        return {**self._head, "object": self.kind, "choices": choices, "usage": usage_of(usages, self.n)}


class CompletionFormat(Format):
    """Of `/v1/completions`. `echoes` are the texts of the prompts, where they are repeated."""

    prefix, kind, chunk_kind = "cmpl", "text_completion", "text_completion"

    def __init__(self, model: str, fields: CompletionRequest, decode: Decode, echoes: Sequence[str] = ()) -> None:
        super().__init__(model, fields, decode)
        self._echoes = echoes
        self._places = dict[int, TextPlace]()  # where the text of each answer goes on

    def choice(self, index: int, tokens: Sequence[Token], *, whole: bool) -> dict[str, Any]:
        """Text; the first has the echo before it."""
        text, logprobs = "".join(token.text for token in tokens), None
        if index not in self._places:
            self._places[index] = TextPlace()
            text = (self._echoes[index // self.n] if self._echoes else "") + text
        if self.logprobs:
            logprobs, self._places[index] = completion_logprobs(tokens, self._decode, self._places[index])
        return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": tokens[-1].finish_reason}


class ChatFormat(Format):
    """Of `/v1/chat/completions`."""

    prefix, kind, chunk_kind = "chatcmpl", "chat.completion", "chat.completion.chunk"

    def opening(self, index: int) -> dict[str, Any]:
        """Who speaks."""
        delta = {"role": "assistant", "content": ""}
        return {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}

    def choice(self, index: int, tokens: Sequence[Token], *, whole: bool) -> dict[str, Any]:
        """A message, or what is new of it."""
        text, reason = "".join(token.text for token in tokens), tokens[-1].finish_reason
        content = {"content": text} if text or not reason else {}
        shown = {"message": {"role": "assistant", "content": text, "refusal": None}} if whole else {"delta": content}
        chosen = [token for token in tokens if token.id is not None]
        logprobs = chat_logprobs(chosen, self._decode) if self.logprobs and chosen else None
        return {"index": index, **shown, "logprobs": logprobs, "finish_reason": reason}


def usage_of(usages: Sequence[Usage], n: int) -> dict[str, Any]:
    """The usage of all answers; `n` of them share a prompt, which counts once."""
    prompts = usages[::n]
    read, written = sum(one.prompt_tokens for one in prompts), sum(one.completion_tokens for one in usages)
    shown: dict[str, Any] = {
        "prompt_tokens": read,
        "completion_tokens": written,
        "total_tokens": read + written,
    }
    if usages and usages[0].extension is not None:
        shown["extension"] = usages[0].extension
    if usages and usages[0].session_tokens is not None:
        shown["session"] = {"tokens": usages[0].session_tokens, "forgotten_tokens": usages[0].forgotten_tokens or 0}
    return shown


class TextPlace(NamedTuple):
    """Where the next token begins: the characters before it, and tokens of a character that is not whole yet."""

    offset: int = 0
    pending: tuple[int, ...] = ()

    def after(self, token: int, decode: Decode) -> TextPlace:
        """The place after one more token. The tokens of one character all begin where it begins."""
        pending = (*self.pending, token)
        text = decode(pending)
        if text.endswith(INCOMPLETE) and len(pending) < MOST_WAITING:
            return TextPlace(self.offset, pending)
        return TextPlace(self.offset + len(text))


def completion_logprobs(
    tokens: Sequence[Token], decode: Decode, place: TextPlace
) -> tuple[dict[str, list[Any]], TextPlace]:
    """Lists by token, as completions have them, and the place in the text after them."""
    lists: dict[str, list[Any]] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
    for token in tokens:
        if token.id is None:
            continue
        string, logprob, top = decode([token.id]), None, None
        if token.logprob is not None:  # else it is the first of a text, which nothing predicts
            logprob = max(token.logprob, LOWEST)
            top = {**{decode([id]): max(other, LOWEST) for id, other in token.top}, string: logprob}
        for values, value in zip(lists.values(), (string, logprob, top, place.offset), strict=True):
            values.append(value)
        place = place.after(token.id, decode)
    return lists, place


def chat_logprobs(tokens: Sequence[Token], decode: Decode) -> dict[str, Any]:
    """An object by token, as chats have them."""

    def entry(id: int | None, logprob: float | None) -> dict[str, Any]:
        string = decode([id or 0])
        whole = None if INCOMPLETE in string else list(string.encode())
        return {"token": string, "logprob": max(logprob or 0.0, LOWEST), "bytes": whole}

    content = [
        {**entry(token.id, token.logprob), "top_logprobs": [entry(*other) for other in token.top]} for token in tokens
    ]
    return {"content": content, "refusal": None}


class Generations:
    """The answers to one HTTP request. They are cancelled when they are closed, and when their client leaves."""

    def __init__(self, engine: Engine, requests: Sequence[Request], receive: Receive, metrics: Metrics) -> None:
        if len(requests) > engine.capacity:
            rule = f"at most {engine.capacity:,} answers in total, the most that can run and wait on this server"
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

    async def wait_for_first(self, seconds: float) -> None:
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
                    failure = unavailable("the answer was cut off because the server is shutting down", seconds=30)
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


async def answer(
    engine: Engine, requests: Sequence[Request], format: Format, receive: Receive, metrics: Metrics
) -> Response:
    """Begin the answers to one HTTP request, and send them as it asks for: whole, or as server-sent events."""
    generations = Generations(engine, requests, receive, metrics)
    return await (_send_events if format.streams else _send_whole)(generations, format)


async def _send_whole(generations: Generations, format: Format) -> Response:
    """Answers as one body."""
    answers: list[list[Token]] = [[] for _ in range(len(generations))]
    with closing(generations):
        async for batch in generations.batches():
            for number, new in batch:
                answers[number] += new
    return Response(compact_json(format.body(answers, generations.usages)), media_type="application/json")


async def _send_events(generations: Generations, format: Format) -> Response:
    """Answers as server-sent events: what waits together is written together."""
    try:
        await generations.wait_for_first(PROMPTLY)
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
