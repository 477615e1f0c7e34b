"""The body of a request: bounded while it is read, and JSON without surprises."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeVar

from starlette.requests import Request

from ropewalk.errors import InvalidValue, Unreadable
from ropewalk.files import read_json, require_text
from ropewalk.serve.refusals import ClientGone, Refusal

SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")  # half of a character, which no text may have alone
DROPPED = 4  # times the limit: what is read and dropped of a body that is too large, so that its client reads why
KINDS = {list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number"}

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Result = TypeVar("Result")


async def read_body(request: Request, limit: int, seconds: float) -> dict[str, Any]:
    """The JSON object in a body of at most `limit` bytes, which must arrive within `seconds`."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        sentence = f"the content type must be application/json, got {kind[:100]!r}"
        raise Refusal(415, f"{sentence}; send the header Content-Type: application/json", code="content_type")
    try:
        body = await asyncio.wait_for(_read(request.receive, limit), seconds)
    except asyncio.TimeoutError:
        sentence = f"the body must arrive within {seconds:g} seconds; the connection is closed"
        raise Refusal(408, sentence, code="timeout", headers={"Connection": "close"}) from None
    return parse_body(body)


async def _read(receive: Receive, limit: int) -> bytes:
    body, size, more = bytearray(), 0, True
    while more and size <= DROPPED * limit:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        chunk, more = message.get("body", b""), message.get("more_body", False)
        size += len(chunk)
        body += chunk if size <= limit else b""
    if size > limit:
        sentence = f"the body must be of at most {limit:,} bytes; send a shorter text"
        raise Refusal(413, sentence, code="too_large", headers={"Connection": "close"})
    return bytes(body)


def parse_body(body: bytes) -> dict[str, Any]:
    """The object that a JSON text holds; NaN, infinity, a key twice and halves of characters are refused."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise Unreadable.because("body", "the body must be text in UTF-8", remedy="encode it as UTF-8") from None
    value = read_json(text, "body")
    if SURROGATE.search(body):
        try:
            require_text(json.dumps(value, ensure_ascii=False), "body")
        except RecursionError:
            raise Unreadable.because("body", "the body is nested too deeply", remedy="send a flat object") from None
    if not isinstance(value, dict):
        sentence = f"the body must be a JSON object, got {KINDS.get(type(value), 'null')}"
        raise InvalidValue.because("body", sentence, remedy='send {"model": ..., ...}')
    return value


async def unless_gone(wanted: Awaitable[Result], receive: Receive) -> Result:
    """The result, unless the client closes the connection first: then the work is cancelled."""
    work, gone = asyncio.ensure_future(wanted), asyncio.ensure_future(wait_until_gone(receive))
    try:
        await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            raise ClientGone
        return work.result()
    finally:
        gone.cancel()
        work.cancel()


async def wait_until_gone(receive: Receive) -> None:
    """Wait until the client closes the connection. The body must have been read."""
    while (await receive())["type"] != "http.disconnect":
        pass
