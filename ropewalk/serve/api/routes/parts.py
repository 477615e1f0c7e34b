"""What routes have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from starlette.requests import Request
from starlette.responses import Response

from ropewalk.serve.api.responses.compact_json import compact_json
from ropewalk.serve.api.service import Ready, Service

Result = TypeVar("Result")


def service_of(request: Request) -> Service:
    """The server's state."""
    return cast(Service, request.app.state.service)


def ready_of(request: Request) -> Ready:
    """The engine and what belongs to it, or a refusal."""
    return service_of(request).require_ready()


async def asked_of(request: Request, meaning: Callable[[dict[str, Any]], Result]) -> Result:
    """What the request's body asks."""
    return await service_of(request).body.read(request, meaning)


async def json_of(request: Request) -> dict[str, Any]:
    """The object in the request's body."""
    return await asked_of(request, lambda values: values)


def reply(value: Any, status: int = 200) -> Response:
    """A response in JSON."""
    return Response(compact_json(value), status, media_type="application/json")
