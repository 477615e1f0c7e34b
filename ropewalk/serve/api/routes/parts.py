"""What routes have in common."""

from __future__ import annotations

from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response

from ropewalk.serve.api.responses.compact_json import compact_json
from ropewalk.serve.api.service import Ready, Service


def service_of(request: Request) -> Service:
    """The server's state."""
    return cast(Service, request.app.state.service)


def ready_of(request: Request) -> Ready:
    """The engine and what belongs to it, or a refusal."""
    return service_of(request).require_ready()


async def json_of(request: Request) -> dict[str, Any]:
    """The object in the request's body."""
    return await service_of(request).body.json(request)


def reply(value: Any, status: int = 200) -> Response:
    """A response in JSON."""
    return Response(compact_json(value), status, media_type="application/json")
