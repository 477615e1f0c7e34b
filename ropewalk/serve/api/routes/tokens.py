"""`/tokenize` and `/detokenize`."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from ropewalk.errors import InvalidValue
from ropewalk.serve.api.requests.body import unless_gone
from ropewalk.serve.api.requests.chat import read_messages
from ropewalk.serve.api.requests.parameters import accepted
from ropewalk.serve.api.requests.texts import Texts
from ropewalk.serve.api.routes.parts import json_of, ready_of, reply

router = APIRouter()
MOST_WRITTEN = 131_072  # tokens that are written one by one


@router.post("/tokenize")
async def tokenize(request: Request) -> Response:
    """The tokens of a text or of a conversation."""
    ready = ready_of(request)
    fields = accepted(await json_of(request), ["model", "prompt", "messages"])
    ready.names.resolve(text_or_none(fields, "model"))
    return reply(await unless_gone(_read(fields, ready.texts), request.receive))


async def _read(fields: dict[str, Any], texts: Texts) -> dict[str, Any]:
    if ("prompt" in fields) == ("messages" in fields):
        raise InvalidValue.because("prompt", "send either prompt or messages")
    if "prompt" in fields:
        ids = await texts.ids(text(fields, "prompt"), most=MOST_WRITTEN)
    else:
        messages = read_messages(fields["messages"]).items
        rendered = await texts.beside(sum(len(message["content"]) for message in messages), texts.rendered, messages)
        ids = await texts.ids(rendered, begins=False, most=MOST_WRITTEN)
    if len(ids) > MOST_WRITTEN:
        raise InvalidValue(
            "prompt", f"at most {MOST_WRITTEN:,} tokens", f"{len(ids):,} tokens", remedy="send it in parts"
        )
    return {"count": len(ids), "tokens": ids, "strings": await texts.strings_of(ids)}


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
