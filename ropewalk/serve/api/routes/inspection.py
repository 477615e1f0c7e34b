"""`/api/losses` and `/api/attention`: what the page shows of a pasted text."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter, Request, Response

from ropewalk.errors import InvalidValue
from ropewalk.serve.api.requests.body import unless_gone
from ropewalk.serve.api.requests.parameters import accepted
from ropewalk.serve.api.requests.texts import Texts
from ropewalk.serve.api.routes.parts import json_of, ready_of, reply
from ropewalk.serve.api.routes.tokens import text, text_or_none

router = APIRouter()
MOST_LOSSES, MOST_ATTENTION, MOST_MODELS = 32_768, 512, 8  # tokens, tokens, models


@router.post("/api/losses")
async def losses(request: Request) -> Response:
    """The loss of every token of a text under several models; the first has none."""
    ready = ready_of(request)
    fields = accepted(await json_of(request), ["text", "models"])
    models = {name: ready.names.resolve(name) for name in _names(fields.get("models"))}
    ids = await unless_gone(_ids(ready.texts, text(fields, "text"), MOST_LOSSES), request.receive)
    wanted = [ready.engine.losses(model.extension, ids) for model in models.values()]
    results = await unless_gone(asyncio.gather(*wanted), request.receive)
    trained = next(iter(models.values())).carried.facts.trained_len
    tokens = await ready.texts.strings_of(ids)
    return reply({"tokens": tokens, "trained_len": trained, "losses": dict(zip(models, results, strict=True))})


@router.post("/api/attention")
async def attention(request: Request) -> Response:
    """What one head attends to, a row for every token; of a longer text the last tokens alone are read."""
    ready = ready_of(request)
    fields = accepted(await json_of(request), ["text", "model", "layer", "head"])
    model = ready.names.resolve(text_or_none(fields, "model"))
    facts = model.carried.facts
    layer = _below(fields.get("layer", 0), "layer", facts.layers)
    head = _below(fields.get("head", 0), "head", facts.heads)
    read = await unless_gone(_ids(ready.texts, text(fields, "text"), MOST_LOSSES), request.receive)
    ids = read[-MOST_ATTENTION:]
    weights = await unless_gone(ready.engine.attention(model.extension, ids, layer, head), request.receive)
    return reply({"tokens": await ready.texts.strings_of(ids), "weights": weights})


def _names(value: Any) -> list[str]:
    names = value if isinstance(value, list) else []
    if not 1 <= len(names) <= MOST_MODELS or not all(isinstance(name, str) for name in names):
        raise InvalidValue("models", f"a list of 1 to {MOST_MODELS} names of models", value)
    return names


async def _ids(texts: Texts, passage: str, most: int) -> tuple[int, ...]:
    ids = await texts.ids(passage, most=most, field="text")
    if not 2 <= len(ids) <= most:
        raise InvalidValue("text", f"of 2 to {most:,} tokens", f"{len(ids):,} tokens")
    return ids


def _below(value: Any, field: str, count: int) -> int:
    if type(value) is not int or not 0 <= value < count:
        raise InvalidValue(field, f"a whole number from 0 to {count - 1}", value)
    return value
