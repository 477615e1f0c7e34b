"""`/v1/completions`."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from ropewalk.serve.api.requests.completion import read_completion
from ropewalk.serve.api.requests.questions import ask_all, of_completion
from ropewalk.serve.api.responses.delivery import EventStream, whole
from ropewalk.serve.api.responses.shapes import CompletionShape, Wanted
from ropewalk.serve.api.responses.written import Answers
from ropewalk.serve.api.routes.parts import json_of, ready_of, service_of

router = APIRouter()


@router.post("/v1/completions")
async def completions(request: Request) -> Response:
    """Continue texts."""
    ready = ready_of(request)
    asked = read_completion(await json_of(request))
    model = ready.names.resolve(asked.model)
    begun = asked.session is not None and ready.engine.session_state(asked.session) is not None
    questions = await of_completion(asked, model, ready.texts, begun=begun)
    echoes = [await ready.texts.text_of(prompt) for prompt in asked.prompt.items] if asked.echo else []
    answers = ask_all(ready.engine, questions)
    if asked.session is not None:
        ready.conversations.drop(asked.session)  # its text is no longer that of its messages
    wanted = Wanted(asked.n, asked.logprobs is not None, asked.include_usage)
    shape = CompletionShape(model.id, ready.texts.decoded, wanted, echoes)
    written = Answers(answers, request.receive, service_of(request).metrics)
    count = len(questions)
    return EventStream(written, shape, count) if asked.stream else await whole(written, shape, count)
