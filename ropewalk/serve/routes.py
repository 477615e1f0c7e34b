"""OpenAI's routes, and those that say what the server has."""

from __future__ import annotations

import time
from collections.abc import Awaitable
from typing import Any

from fastapi import APIRouter, Request, Response
from prometheus_client import generate_latest

from ropewalk.errors import InvalidValue
from ropewalk.serve.prompts import chat_requests, completion_requests
from ropewalk.serve.refusals import Refusal
from ropewalk.serve.requests import SESSION, accept, read_body, read_chat, read_completion, read_messages, unless_gone
from ropewalk.serve.responses import ChatFormat, CompletionFormat, answer, compact_json
from ropewalk.serve.service import NamedModel, ServedModels, models_of, service_of

router = APIRouter()
MOST_STRINGS = 131_072  # tokens whose texts are written one by one
BEGAN = int(time.time())
NO_SESSION = "there is no such session; a request with new_session starts it"


@router.post("/v1/completions")
async def completions(request: Request) -> Response:
    """Continue texts."""
    models = models_of(request)
    fields = read_completion(await body_of(request))
    model, tokenizer = models.find(fields.model), models.tokenizer
    requests = await unless_gone(completion_requests(fields, model, models), request.receive)
    echoes = [one if isinstance(one, str) else tokenizer.decode(one) for one in fields.prompt.items if fields.echo]
    format = CompletionFormat(model.id, fields, tokenizer.decode, echoes)
    return await answer(models.engine, requests, format, request.receive, service_of(request).metrics)


@router.post("/v1/chat/completions")
async def chat(request: Request) -> Response:
    """Answer a conversation."""
    models = models_of(request)
    fields = read_chat(await body_of(request))
    model = models.find(fields.model)
    requests = await unless_gone(chat_requests(fields, model, models), request.receive)
    format = ChatFormat(model.id, fields, models.tokenizer.decode)
    return await answer(models.engine, requests, format, request.receive, service_of(request).metrics)


@router.get("/v1/models")
async def list_models(request: Request) -> Response:
    """Every model, that of the start first: one set of weights under several extensions."""
    models = models_of(request)
    return reply({"object": "list", "data": [_show(model, models) for model in models.all()]})


@router.get("/v1/models/{model:path}")
async def show_model(request: Request, model: str) -> Response:
    """One model."""
    models = models_of(request)
    return reply(_show(models.find(model), models))


def _show(model: NamedModel, models: ServedModels) -> dict[str, Any]:
    facts = model.served.facts
    about = {
        "extension": model.extension,
        "trained_len": facts.trained_len,
        "target_len": model.served.max_len,
        "chat": models.tokenizer.has_chat,
        "layers": facts.layers,
        "heads": facts.heads,
    }
    return {"id": model.id, "object": "model", "created": BEGAN, "owned_by": "ropewalk", "ropewalk": about}


@router.get("/v1/sessions/{session}")
async def show_session(request: Request, session: str) -> Response:
    """What a session has read."""
    state = models_of(request).engine.session_state(session) if SESSION.fullmatch(session) else None
    if state is None:
        raise Refusal(404, NO_SESSION, code="not_found")
    read = {"tokens": state.tokens, "forgotten_tokens": state.forgotten}
    return reply({"id": session, "object": "session", **read})


@router.delete("/v1/sessions/{session}")
async def drop_session(request: Request, session: str) -> Response:
    """Forget a session."""
    if not SESSION.fullmatch(session) or not await models_of(request).engine.drop_session(session):
        raise Refusal(404, NO_SESSION, code="not_found")
    return reply({"id": session, "object": "session.deleted", "deleted": True})


@router.post("/tokenize")
async def tokenize(request: Request) -> Response:
    """The tokens of a text or of a conversation."""
    models = models_of(request)
    fields = accept(await body_of(request), ["model", "prompt", "messages"])
    models.find(text_of(fields, "model") if "model" in fields else None)
    tokenizer = models.tokenizer
    if ("prompt" in fields) == ("messages" in fields):
        raise InvalidValue.because("prompt", "send either prompt or messages")
    if "prompt" in fields:
        text = text_of(fields, "prompt")
    else:
        messages = read_messages(fields["messages"]).items
        text = await tokenizer.run(sum(len(one["content"]) for one in messages), tokenizer.render, messages)
    encoding = tokenizer.encode(text, begins="prompt" in fields, most=MOST_STRINGS)
    ids = await unless_gone(encoding, request.receive)
    if len(ids) > MOST_STRINGS:
        rule = f"at most {MOST_STRINGS:,} tokens"
        raise InvalidValue("prompt", rule, f"{len(ids):,} tokens", remedy="send it in parts")
    strings = await tokenizer.run(8 * len(ids), tokenizer.strings, ids)
    return reply({"count": len(ids), "tokens": ids, "strings": strings})


@router.post("/detokenize")
async def detokenize(request: Request) -> Response:
    """The text of tokens."""
    models = models_of(request)
    fields = accept(await body_of(request), ["model", "tokens"])
    models.find(text_of(fields, "model") if "model" in fields else None)
    ids = fields.get("tokens")
    if not isinstance(ids, list) or set(map(type, ids)) != {int}:
        raise InvalidValue("tokens", "a list of token ids, at least one", ids)
    await models.tokenizer.encode(tuple(ids), field="tokens")
    return reply({"prompt": await models.tokenizer.run(len(ids), models.tokenizer.decode, ids)})


@router.get("/health")
async def health(request: Request) -> Response:
    """Whether requests are answered: 200, or 503 while the model is loaded and while the server shuts down."""
    phase = service_of(request).phase
    return reply({"status": phase}, 200 if phase == "ready" else 503)


@router.get("/metrics")
async def metrics(request: Request) -> Response:
    """Figures for Prometheus."""
    figures = generate_latest(service_of(request).metrics.registry)
    return Response(figures, media_type="text/plain; version=0.0.4; charset=utf-8")


def body_of(request: Request) -> Awaitable[dict[str, Any]]:
    """The JSON object that a request sends."""
    settings = service_of(request).settings
    return read_body(request, settings.body_bytes, settings.body_seconds)


def text_of(fields: dict[str, Any], name: str) -> str:
    """A field that must be text."""
    value = fields.get(name)
    if not isinstance(value, str):
        raise InvalidValue(name, "text", value)
    return value


def reply(value: Any, status: int = 200) -> Response:
    """A response in JSON."""
    return Response(compact_json(value), status, media_type="application/json")
