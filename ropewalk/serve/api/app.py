"""The server as an ASGI application: routes behind gates, and every error in OpenAI's shape."""

from __future__ import annotations

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from ropewalk.errors import RopewalkError
from ropewalk.serve.api.gates.auth import Authorized
from ropewalk.serve.api.gates.observed import NO_ANSWER, Observed
from ropewalk.serve.api.responses.errors import ClientGone, Refusal, refusal_of
from ropewalk.serve.api.routes import chat, completions, health, inspection, models, page, sessions, tokens
from ropewalk.serve.api.service import Service
from ropewalk.serve.generation.request import QueueFull, SessionBusy, SessionGone

ROOMS = (completions, chat, models, tokens, sessions, inspection, page, health)
EXPECTED = (Refusal, RopewalkError, QueueFull, SessionGone, SessionBusy, Exception)


def application(service: Service) -> ASGIApp:
    """The whole server.

    uvicorn.run(application(Service(ApiSettings())))
    """
    routed = FastAPI(title="Ropewalk", docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    routed.state.service = service
    for room in ROOMS:
        routed.include_router(room.router)
    for kind in EXPECTED:
        routed.add_exception_handler(kind, _refused)
    routed.add_exception_handler(ClientGone, _nobody)
    routed.add_exception_handler(HTTPException, _of_routing)
    app: ASGIApp = Authorized(routed, service)
    if service.settings.allow_origins:
        allowed = ["authorization", "content-type"]
        methods = ["GET", "POST", "DELETE"]
        app = CORSMiddleware(app, service.settings.allow_origins, methods, allowed)
    return Observed(app, service)


async def _refused(request: Request, error: Exception) -> Response:
    return refusal_of(error).response()


async def _nobody(request: Request, error: Exception) -> Response:
    return Response(status_code=NO_ANSWER)


async def _of_routing(request: Request, error: Exception) -> Response:
    """A path or a method that does not exist."""
    status = getattr(error, "status_code", 404)
    headers = dict(getattr(error, "headers", None) or {})
    path = request.url.path[:200]
    if status == 405:
        sentence = f"{path} does not take {request.method[:20]}; it takes {headers.get('Allow', 'another method')}"
        return Refusal(405, sentence, code="method_not_allowed", headers=headers).response()
    return Refusal(status, f"there is no {path!r} here", code="not_found", headers=headers).response()
