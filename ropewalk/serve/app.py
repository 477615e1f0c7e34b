"""The server as an ASGI application: routes behind middleware, and every error in OpenAI's shape."""

from __future__ import annotations

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from ropewalk.errors import RopewalkError
from ropewalk.serve import page, routes
from ropewalk.serve.generation.request import QueueFull, SessionBusy, SessionGone
from ropewalk.serve.middleware import Authorized, Observed
from ropewalk.serve.refusals import ClientGone, Refusal, refusal_of
from ropewalk.serve.service import Service

EXPECTED = (Refusal, ClientGone, RopewalkError, QueueFull, SessionGone, SessionBusy, Exception)


def application(service: Service) -> ASGIApp:
    """The whole server."""
    routed = FastAPI(title="Ropewalk", docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    routed.state.service = service
    routed.include_router(routes.router)
    routed.include_router(page.router)
    for kind in EXPECTED:
        routed.add_exception_handler(kind, _refuse)
    routed.add_exception_handler(HTTPException, _refuse_route)
    app: ASGIApp = Authorized(routed, service)
    if service.settings.allow_origins:
        allowed = ["authorization", "content-type"]
        app = CORSMiddleware(app, service.settings.allow_origins, ["GET", "POST", "DELETE"], allowed)
    return Observed(app, service)


async def _refuse(request: Request, error: Exception) -> Response:
    return refusal_of(error).response()


async def _refuse_route(request: Request, error: Exception) -> Response:
    """A path or a method that does not exist."""
    status = getattr(error, "status_code", 404)
    headers = dict(getattr(error, "headers", None) or {})
    path = request.url.path[:200]
    if status == 405:
        sentence = f"{path} does not take {request.method[:20]}; it takes {headers.get('Allow', 'another method')}"
        return Refusal(405, sentence, code="method_not_allowed", headers=headers).response()
    return Refusal(status, f"there is no {path!r} here", code="not_found", headers=headers).response()
