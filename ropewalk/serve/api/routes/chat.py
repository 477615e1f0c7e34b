"""`/v1/chat/completions`."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from ropewalk.serve.api.conversations import turn_of
from ropewalk.serve.api.names import NamedModel
from ropewalk.serve.api.requests.body import unless_gone
from ropewalk.serve.api.requests.chat import ChatRequest, read_chat
from ropewalk.serve.api.requests.questions import ask_all, of_chat
from ropewalk.serve.api.responses.delivery import EventStream, whole
from ropewalk.serve.api.responses.shapes import ChatShape, Wanted
from ropewalk.serve.api.responses.written import Answers
from ropewalk.serve.api.routes.parts import asked_of, ready_of, service_of
from ropewalk.serve.api.service import Ready
from ropewalk.serve.generation.request import Request as Question

router = APIRouter()


@router.post("/v1/chat/completions")
async def chat(request: Request) -> Response:
    """Answer a conversation."""
    ready = ready_of(request)
    asked = await asked_of(request, read_chat)
    model = ready.names.resolve(asked.model)
    questions = await unless_gone(_questions(asked, model, ready), request.receive)
    answers = ask_all(ready.engine, questions)
    wanted = Wanted(asked.n, asked.logprobs, asked.include_usage)
    shape = ChatShape(model.id, ready.texts.decoded, wanted)
    written = Answers(answers, request.receive, service_of(request).metrics)
    count = len(questions)
    return EventStream(written, shape, count) if asked.stream else await whole(written, shape, count)


async def _questions(asked: ChatRequest, model: NamedModel, ready: Ready) -> list[Question]:
    return await of_chat(asked, model, ready.texts, await turn_of(asked, ready.engine, ready.texts))
