"""The server as an ASGI application: every request is counted, must have the API key or name this machine, and gets
its route; every error is in OpenAI's shape."""

from __future__ import annotations

import base64
import binascii
import hmac
import logging
import traceback

from fastapi import FastAPI, Request, Response
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ropewalk.errors import RopewalkError
from ropewalk.serve import page, routes
from ropewalk.serve.generation.request import QueueFull, SessionBusy, SessionGone
from ropewalk.serve.refusals import NO_ANSWER, ClientGone, Refusal, refusal_of
from ropewalk.serve.service import Service

EXPECTED = (Refusal, ClientGone, RopewalkError, QueueFull, SessionGone, SessionBusy, Exception)
LOG = logging.getLogger("ropewalk.serve")
UNCOUNTED = ("/health", "/metrics")  # they do not keep a server that shuts down waiting
HEADERS = [(b"x-content-type-options", b"nosniff"), (b"referrer-policy", b"no-referrer")]


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
        sentence = (
            f"{path} does not support {request.method[:20]}; it supports {headers.get('Allow', 'another method')}"
        )
        return Refusal(405, sentence, code="method_not_allowed", headers=headers).response()
    return Refusal(status, f"there is no {path!r} here", code="not_found", headers=headers).response()


class Observed:
    """The outermost: counts requests, and answers unexpected errors without showing or logging anybody's text."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app, self._service = app, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, and count it."""
        status = NO_ANSWER

        async def observe(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message["headers"], *HEADERS]}
            await send(message)

        counts = scope["path"] not in UNCOUNTED
        self._service.in_flight += counts
        try:
            await self._app(scope, receive, observe)
        except Exception as error:  # its message may quote a client's text, so only the places are logged
            places = "".join(traceback.format_tb(error.__traceback__))
            LOG.error("a request failed by %s\n%s", type(error).__name__, places)
            if status == NO_ANSWER:
                await refusal_of(error).response()(scope, receive, observe)
        finally:
            self._service.in_flight -= counts
            # The path with its parameters unfilled: clients could fill the registry with paths of their own.
            route = getattr(scope.get("route"), "path", "none")
            self._service.metrics.requests.labels(route, str(status)).inc()


class Authorized:
    """Lets through what has the key; browsers may send it as a password. `/health` is open.

    Without a key, a page of another site could reach the server under a host name of its own that leads to this
    machine. So the host must be a name of this machine.
    """

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app, self._hosts = app, service.settings.hosts
        self._key = (service.settings.api_key or "").encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or refuse it."""
        refusal = None if scope["path"] == "/health" else self._refusal(Headers(scope=scope), scope["path"])
        await (refusal.response() if refusal else self._app)(scope, receive, send)

    def _refusal(self, headers: Headers, path: str) -> Refusal | None:
        host, colon, port = headers.get("host", "").rpartition(":")
        host = (host if colon and port.isdecimal() else headers.get("host", "")).lower()
        if self._hosts and host not in self._hosts:
            sentence = f"the Host header must be {' or '.join(dict.fromkeys(self._hosts))}, got {host[:100]!r}"
            return Refusal(403, f"{sentence}; start the server with --api-key to allow any name", code="host")
        if not self._key or _has_key(headers.get("authorization", ""), self._key):
            return None
        sentence = "the API key is missing or wrong; send the header Authorization: Bearer KEY"
        scheme = 'Basic realm="Ropewalk"' if path == "/" else "Bearer"
        return Refusal(401, sentence, code="invalid_api_key", headers={"WWW-Authenticate": scheme})


def _has_key(authorization: str, key: bytes) -> bool:
    """Whether the header has the key, compared in constant time."""
    scheme, _, sent = authorization.partition(" ")
    secret = sent.strip().encode("latin-1")  # as it was sent
    if scheme.lower() == "basic":
        try:
            secret = base64.b64decode(sent, validate=True).partition(b":")[2]
        except (binascii.Error, ValueError):
            return False
    return scheme.lower() in ("bearer", "basic") and hmac.compare_digest(secret, key)
