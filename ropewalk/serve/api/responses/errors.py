"""Errors in OpenAI's shape: one sentence, the parameter, and a code that programs can read."""

from __future__ import annotations

import json
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from starlette.responses import Response

from ropewalk.errors import RopewalkError
from ropewalk.serve.generation.request import QueueFull, SessionBusy, SessionGone

INVALID, BUSY, FAILED = "invalid_request_error", "rate_limit_error", "server_error"
AUTHENTICATION, PERMISSION = "authentication_error", "permission_error"


class Refusal(Exception):
    """A request that is not answered, as its client will read it."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = INVALID,
        param: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.kind = status, message, kind
        self.param, self.code, self.headers = param, code, headers or {}

    def body(self) -> dict[str, Any]:
        """The error as JSON."""
        return {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}}

    def response(self) -> Response:
        """The error as a response."""
        return Response(json.dumps(self.body()), self.status, media_type="application/json", headers=self.headers)


class ClientGone(Exception):
    """The client has closed the connection: nobody reads an answer."""


def refusal_of(error: BaseException) -> Refusal:
    """What a client reads of an error; of an unexpected one, nothing but that there was one."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, QueueFull):
        return Refusal(
            429, f"{error}; try again in a second", kind=BUSY, code="queue_full", headers={"Retry-After": "1"}
        )
    if isinstance(error, SessionGone):
        sentence = "the session was evicted to make room, or ended; begin it again with new_session and all of its text"
        return Refusal(410, sentence, param="session", code="session_gone")
    if isinstance(error, SessionBusy):
        sentence = (
            "the session is answering another request, or has just answered one; send this one once that has ended"
        )
        return Refusal(409, sentence, param="session", code="session_busy")
    if isinstance(error, RopewalkError):
        return Refusal(400, str(error), param=error.field)
    return Refusal(500, "the server failed at this request; its log names the error", kind=FAILED)


def unknown_model(name: str, known: Iterable[str], why: str = "") -> Refusal:
    """A model or an extension that is not served, with the nearest one that is."""
    names = list(known)
    longer = [served for served in names if len(name) > 1 and served.startswith(name)]
    close = longer or get_close_matches(name[:200].lower(), names, n=1, cutoff=0.4)
    hint = f"; did you mean {close[0]!r}?" if close else "."
    sentence = f"the model {name[:200]!r} is not served here{hint} Served: {', '.join(names)}"
    reason = f"; {why.partition(' Known:')[0]}" if why else ""
    return Refusal(404, sentence + reason, param="model", code="model_not_found")


def unavailable(sentence: str, *, seconds: int) -> Refusal:
    """Not now: the client may try again after so many seconds."""
    return Refusal(503, sentence, kind=FAILED, code="unavailable", headers={"Retry-After": str(seconds)})
