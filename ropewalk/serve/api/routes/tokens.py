"""`/tokenize` and `/detokenize`."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from ropewalk.errors import InvalidValue
from ropewalk.serve.api.requests.chat import read_messages
from ropewalk.serve.api.requests.parameters import accepted
from ropewalk.serve.api.routes.parts import json_of, ready_of, reply

router = APIRouter()


@router.post("/tokenize")
async def tokenize(request: Request) -> Response:
    """The tokens of a text or of a conversation."""
    ready = ready_of(request)
    fields = accepted(await json_of(request), ["model", "prompt", "messages"])
    ready.names.resolve(text_or_none(fields, "model"))
    if ("prompt" in fields) == ("messages" in fields):
        raise InvalidValue.because("prompt", "send either prompt or messages")
    if "prompt" in fields:
        ids = await ready.texts.ids(text(fields, "prompt"))
    else:
        rendered = ready.texts.rendered(read_messages(fields["messages"]).items)
        ids = await ready.texts.ids(rendered, begins=False)
    return reply({"count": len(ids), "tokens": ids, "strings": await ready.texts.strings_of(ids)})


@router.post("/detokenize")
async def detokenize(request: Request) -> Response:
    """The text of tokens."""
    ready = ready_of(request)
    fields = accepted(await json_of(request), ["model", "tokens"])
    ready.names.resolve(text_or_none(fields, "model"))
    ids = await ready.texts.prompt_ids(_ids(fields.get("tokens")), field="tokens")
    return reply({"prompt": await ready.texts.text_of(ids)})


def _ids(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or not value or set(map(type, value)) != {int}:
        raise InvalidValue("tokens", "a list of token ids, at least one", value)
    return tuple(value)


def text(fields: dict[str, Any], name: str) -> str:
    """A field that must be text."""
    value = fields.get(name)
    if not isinstance(value, str):
        raise InvalidValue(name, "text", value)
    return value


def text_or_none(fields: dict[str, Any], name: str) -> str | None:
    """A field that may be left out."""
    return text(fields, name) if name in fields else None
