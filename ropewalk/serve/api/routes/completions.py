"""`/v1/completions`."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from ropewalk.serve.api.conversations import state_before
from ropewalk.serve.api.requests.body import unless_gone
from ropewalk.serve.api.requests.completion import read_completion
from ropewalk.serve.api.requests.questions import ask_all, of_completion
from ropewalk.serve.api.responses.delivery import EventStream, whole
from ropewalk.serve.api.responses.shapes import CompletionShape, Wanted
from ropewalk.serve.api.responses.written import Answers
from ropewalk.serve.api.routes.parts import asked_of, ready_of, service_of

router = APIRouter()


@router.post("/v1/completions")
async def completions(request: Request) -> Response:
    """Continue texts."""
    ready = ready_of(request)
    asked = await asked_of(request, read_completion)
    model = ready.names.resolve(asked.model)
    before = state_before(asked, ready.engine)
    questions = await unless_gone(of_completion(asked, model, ready.texts, before), request.receive)
    echoes = [await ready.texts.text_of(prompt) for prompt in asked.prompt.items] if asked.echo else []
    answers = ask_all(ready.engine, questions)
    wanted = Wanted(asked.n, asked.logprobs is not None, asked.include_usage)
    shape = CompletionShape(model.id, ready.texts.decoded, wanted, echoes)
    written = Answers(answers, request.receive, service_of(request).metrics)
    count = len(questions)
    return EventStream(written, shape, count) if asked.stream else await whole(written, shape, count)
