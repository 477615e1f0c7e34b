"""`/v1/sessions/{id}`: what a session has read, and its end."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from ropewalk.serve.api.requests.fields import SESSION
from ropewalk.serve.api.responses.errors import Refusal
from ropewalk.serve.api.responses.usage import session_of
from ropewalk.serve.api.routes.parts import ready_of, reply

router = APIRouter()
UNKNOWN = "there is no such session; a request with new_session begins it"


@router.get("/v1/sessions/{session}")
async def session_state(request: Request, session: str) -> Response:
    """What a session has read."""
    ready = ready_of(request)
    state = ready.engine.session_state(session) if SESSION.fullmatch(session) else None
    if state is None:
        raise Refusal(404, UNKNOWN, code="not_found")
    return reply({"id": session, "object": "session", **session_of(state.tokens, state.forgotten)})


@router.delete("/v1/sessions/{session}")
async def drop_session(request: Request, session: str) -> Response:
    """Forget a session."""
    ready = ready_of(request)
    dropped = bool(SESSION.fullmatch(session)) and await ready.engine.drop_session(session)
    if not dropped:
        raise Refusal(404, UNKNOWN, code="not_found")
    return reply({"id": session, "object": "session.deleted", "deleted": True})
