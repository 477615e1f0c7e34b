"""Errors in OpenAI's shape: one sentence, the parameter, and a code that programs can read."""

from __future__ import annotations

import json
from typing import Any

from starlette.responses import Response

from ropewalk.errors import RopewalkError
from ropewalk.serve.generation.request import QueueFull, SessionBusy, SessionGone

NO_ANSWER = 499  # the status of a request whose client went away
TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error", 500: "server_error"}
GONE = "the session was evicted to make room, or deleted; start it again with new_session and the whole text"
BUSY = "the session is answering another request, or has just answered one; send this again once that has ended"


class Refusal(Exception):
    """A request that is not answered, as its client will read it."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code, self.headers = status, message, param, code, headers or {}

    def body(self) -> dict[str, Any]:
        """The error as JSON."""
        kind = TYPES.get(min(self.status, 500), "invalid_request_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    def response(self) -> Response:
        """The error as a response."""
        return Response(json.dumps(self.body()), self.status, media_type="application/json", headers=self.headers)


class ClientGone(Exception):
    """The client has closed the connection: nobody reads an answer."""


def refusal_of(error: BaseException) -> Refusal:
    """The refusal that a client reads for an error; for an unexpected one it says only that there was one."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, ClientGone):
        return Refusal(NO_ANSWER, "the client closed the connection")
    if isinstance(error, QueueFull):
        return Refusal(429, f"{error}; try again in a second", code="queue_full", headers={"Retry-After": "1"})
    if isinstance(error, SessionGone):
        return Refusal(410, GONE, param="session", code="session_gone")
    if isinstance(error, SessionBusy):
        return Refusal(409, BUSY, param="session", code="session_busy")
    if isinstance(error, RopewalkError):
        return Refusal(400, str(error), param=error.field)
    return Refusal(500, "the server failed at this request; its log names the error")


def unavailable(sentence: str, *, seconds: int) -> Refusal:
    """Not now: the client may try again after so many seconds."""
    return Refusal(503, sentence, code="unavailable", headers={"Retry-After": str(seconds)})
