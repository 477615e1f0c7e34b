"""The body of a request: bounded while it is read, and JSON without surprises."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.requests import Request

from ropewalk.errors import InvalidValue, Unreadable
from ropewalk.files import read_json, require_text
from ropewalk.serve.api.responses.errors import ClientGone, Refusal, unavailable

SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")  # half of a character, which no text may have alone
PATIENCE = 4  # times the limit: what is read and dropped of a body that is too large, so that its client reads why
TOGETHER = 25  # times the limit: all bodies that are in memory while they are read

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


class BodyReader:
    """Reads bodies of at most `limit` bytes within `seconds`, and not too many at once."""

    def __init__(self, limit: int, seconds: float) -> None:
        self._limit, self._seconds, self._held = limit, seconds, 0

    async def json(self, request: Request) -> dict[str, Any]:
        """The object that the body holds."""
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
        return parsed(body)

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
        finally:
            self._held -= len(body)
        if size > self._limit:
            raise self._too_large()
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
