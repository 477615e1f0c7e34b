"""The body of a request: bounded while it is read, parsed beside the event loop, and JSON without surprises.

Python's parser lets no other thread go on until it is done. So a body is bounded by the values that it has, which take
most of that time, and not by its bytes alone.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from starlette.requests import Request

from ropewalk.errors import InvalidValue, Unreadable
from ropewalk.files import read_json, require_text
from ropewalk.serve.api.responses.errors import ClientGone, Refusal, unavailable

SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")  # half of a character, which no text may have alone
PATIENCE = 4  # times the limit: what is read and dropped of a body that is too large, so that its client reads why
TOGETHER = 25  # times the limit: all bodies that are in memory before they are parsed
SHORT = 16_000  # bytes that are parsed within a millisecond
MOST_VALUES = 300_000  # in one body: a number is one, a text or a list two, a name with its number three
MARKS = (b",", b":", b"[", b"{")  # before every value but one
VALUES = re.compile(rb'"[^"]*"|[,:\[{]')  # texts, and the marks between them

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Result = TypeVar("Result")


class BodyReader:
    """Reads bodies of at most `limit` bytes within `seconds`, and not too many at once."""

    def __init__(self, limit: int, seconds: float) -> None:
        self._limit, self._seconds, self._held = limit, seconds, 0
        self._parser = ThreadPoolExecutor(1, "bodies")

    async def read(self, request: Request, meaning: Callable[[dict[str, Any]], Result]) -> Result:
        """What the body's object means; `meaning` is worked out beside the event loop as well."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            sentence = f"the content type must be application/json, got {kind[:100]!r}"
            raise Refusal(415, f"{sentence}; send the header Content-Type: application/json", code="content_type")
        self._require_declared(request)
        try:
            body = await asyncio.wait_for(self._read(request.receive), self._seconds)
        except asyncio.TimeoutError:
            sentence = f"the body must arrive within {self._seconds:g} seconds; the connection is closed"
            raise Refusal(408, sentence, code="timeout", headers={"Connection": "close"}) from None
        try:
            return await self._parsed(body, request.receive, meaning)
        finally:
            self._held -= len(body)

    def close(self) -> None:
        """End the thread."""
        self._parser.shutdown(wait=False, cancel_futures=True)

    async def _parsed(self, body: bytes, receive: Receive, meaning: Callable[[dict[str, Any]], Result]) -> Result:
        if len(body) <= SHORT:
            return meaning(parsed(body))
        work = asyncio.get_running_loop().run_in_executor(self._parser, lambda: meaning(parsed(body)))
        return await unless_gone(work, receive)

    def _require_declared(self, request: Request) -> None:
        """Refuse at once what says that it is too large, where its client waits to be asked for it."""
        declared = request.headers.get("content-length", "0")
        waits = request.headers.get("expect", "").lower() == "100-continue"
        if waits and declared.isdecimal() and (len(declared) > 18 or int(declared) > self._limit):
            raise self._too_large()

    async def _read(self, receive: Receive) -> bytes:
        body, size, more = bytearray(), 0, True
        try:
            while more and size <= PATIENCE * self._limit:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientGone
                chunk, more = message.get("body", b""), message.get("more_body", False)
                size += len(chunk)
                if size <= self._limit:
                    self._hold(len(chunk))
                    body += chunk
            if size > self._limit:
                raise self._too_large()
        except BaseException:
            self._held -= len(body)
            raise
        return bytes(body)

    def _hold(self, size: int) -> None:
        if self._held + size > TOGETHER * self._limit:
            raise unavailable("too many large requests arrive at once", seconds=5)
        self._held += size

    def _too_large(self) -> Refusal:
        sentence = f"the body must be of at most {self._limit:,} bytes; send a shorter text"
        return Refusal(413, sentence, code="too_large", headers={"Connection": "close"})


def parsed(body: bytes) -> dict[str, Any]:
    """The object that a JSON text holds; NaN, infinity, a key twice and halves of characters are refused.

    parsed(b'{"n": 2}') == {"n": 2}
    """
    _require_few_values(body)
    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise Unreadable.because("body", "the body must be text in UTF-8", remedy="encode it as UTF-8") from None
    value = read_json(text, "body")
    if SURROGATE.search(body):
        _require_characters(value)
    if not isinstance(value, dict):
        sentence = f"the body must be a JSON object, got {_kind(value)}"
        raise InvalidValue.because("body", sentence, remedy='send {"model": ..., ...}')
    return value


def _require_few_values(body: bytes) -> None:
    """Refuse what would take the parser long: many values. Marks in texts count only where there are many of them."""
    if sum(map(body.count, MARKS)) < MOST_VALUES:
        return
    unescaped = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    if any(count > MOST_VALUES for count, _ in enumerate(VALUES.finditer(unescaped))):
        sentence = f"the body has more than {MOST_VALUES:,} values"
        remedy = "send text instead of token ids, or a session's text in several requests"
        raise Unreadable.because("body", sentence, remedy=remedy)


async def unless_gone(wanted: Awaitable[Result], receive: Receive) -> Result:
    """The result, unless the client closes the connection first: then the work is cancelled."""
    work = asyncio.ensure_future(wanted)
    gone = asyncio.ensure_future(disconnected(receive))
    try:
        await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            raise ClientGone
        return work.result()
    finally:
        gone.cancel()
        work.cancel()


async def disconnected(receive: Receive) -> None:
    """Wait until the client closes the connection. The body must have been read."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _require_characters(value: Any) -> None:
    """Refuse halves of characters, which JSON can write and no tokenizer reads."""
    try:
        require_text(json.dumps(value, ensure_ascii=False), "body")
    except RecursionError:
        raise Unreadable.because("body", "the body is nested too deeply", remedy="send a flat object") from None


def _kind(value: Any) -> str:
    kinds = {list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number"}
    return kinds.get(type(value), "null")
