"""`/v1/chat/completions`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from fastapi import APIRouter, Request, Response

from ropewalk.serve.api.conversations import Conversation, answered, continued
from ropewalk.serve.api.requests.chat import ChatRequest, Message, read_chat
from ropewalk.serve.api.requests.questions import ask_all, of_chat
from ropewalk.serve.api.responses.delivery import EventStream, whole
from ropewalk.serve.api.responses.errors import Refusal
from ropewalk.serve.api.responses.shapes import ChatShape, Wanted
from ropewalk.serve.api.responses.written import Answers
from ropewalk.serve.api.routes.parts import json_of, ready_of, service_of
from ropewalk.serve.api.service import Ready

router = APIRouter()
Keep = Callable[[Sequence[int]], None]


@router.post("/v1/chat/completions")
async def chat(request: Request) -> Response:
    """Answer a conversation."""
    ready = ready_of(request)
    asked = read_chat(await json_of(request))
    model = ready.names.resolve(asked.model)
    new, read, keep = _opened(ready, asked)
    questions = await of_chat(asked, model, ready.texts, new, read)
    answers = ask_all(ready.engine, questions)
    wanted = Wanted(asked.n, asked.logprobs, asked.include_usage)
    shape = ChatShape(model.id, ready.texts.decoded, wanted)
    written = Answers(answers, request.receive, service_of(request).metrics, keep=keep)
    count = len(questions)
    return EventStream(written, shape, count) if asked.stream else await whole(written, shape, count)


def _opened(ready: Ready, asked: ChatRequest) -> tuple[str, int, Keep | None]:
    """The text to read, the tokens that the session has read before, and what stores the answer."""
    messages = asked.messages.items
    if asked.session is None:
        return ready.texts.rendered(messages), 0, None
    state = ready.engine.session_state(asked.session)
    before = ready.conversations.get(asked.session) or Conversation()
    if state is not None and not before.messages:
        sentence = "the session was not begun by messages, so no messages can follow"
        raise Refusal(409, f"{sentence}; use /v1/completions, or another session", param="session", code="no_chat")
    every, text, new = continued(before, messages, ready.texts.rendered)
    keep = partial(_keep, ready, asked.session, every, text)
    return new, 0 if state is None else state.session_tokens or 0, keep


def _keep(ready: Ready, session: str, messages: Sequence[Message], text: str, ids: Sequence[int]) -> None:
    ready.conversations.keep(session, answered(messages, text, ready.texts.answer(ids)))
