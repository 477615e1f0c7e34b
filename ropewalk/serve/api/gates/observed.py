"""The outermost gate: counts requests, and answers unexpected errors without showing or logging anybody's text."""

from __future__ import annotations

import logging
import traceback

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ropewalk.serve.api.responses.errors import refusal_of
from ropewalk.serve.api.service import Service

LOG = logging.getLogger("ropewalk.serve")
UNCOUNTED = ("/health", "/metrics")  # they do not keep a server that shuts down waiting
HEADERS = [(b"x-content-type-options", b"nosniff"), (b"referrer-policy", b"no-referrer")]
NO_ANSWER = 499  # the status of a request whose client went away


class Observed:
    """Every request passes here first."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app, self._service = app, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, and count it."""
        status = NO_ANSWER

        async def counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message["headers"], *HEADERS]}
            await send(message)

        counts = scope["path"] not in UNCOUNTED
        self._service.in_flight += counts
        try:
            await self._app(scope, receive, counted)
        except Exception as error:
            _log(error)
            if status == NO_ANSWER:
                await refusal_of(error).response()(scope, receive, counted)
        finally:
            self._service.in_flight -= counts
            self._service.metrics.requests.labels(_route(scope), str(status)).inc()


def _route(scope: Scope) -> str:
    """The path with its parameters unfilled: clients could fill the registry with paths of their own."""
    return getattr(scope.get("route"), "path", "none")


def _log(error: BaseException) -> None:
    """Where an error came from; its message may quote a client's text."""
    places = "".join(traceback.format_tb(error.__traceback__))
    LOG.error("a request failed by %s\n%s", type(error).__name__, places)
