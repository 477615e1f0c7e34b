"""`/v1/models`: one set of weights under several extensions."""

from __future__ import annotations

import time
from typing import Any

from fastapi import APIRouter, Request, Response

from ropewalk.serve.api.names import NamedModel
from ropewalk.serve.api.routes.parts import ready_of, reply
from ropewalk.serve.api.service import Ready

router = APIRouter()
BEGAN = int(time.time())


@router.get("/v1/models")
async def models(request: Request) -> Response:
    """Every model, that of the start first."""
    ready = ready_of(request)
    return reply({"object": "list", "data": [_shown(model, ready) for model in ready.names.all()]})


@router.get("/v1/models/{model:path}")
async def model(request: Request, model: str) -> Response:
    """One model."""
    ready = ready_of(request)
    return reply(_shown(ready.names.resolve(model), ready))


def _shown(model: NamedModel, ready: Ready) -> dict[str, Any]:
    facts = model.carried.facts
    about = {
        "extension": model.extension,
        "trained_len": facts.trained_len,
        "target_len": model.carried.carried,
        "chat": ready.texts.chats,
        "layers": facts.layers,
        "heads": facts.heads,
    }
    return {"id": model.id, "object": "model", "created": BEGAN, "owned_by": "ropewalk", "ropewalk": about}
