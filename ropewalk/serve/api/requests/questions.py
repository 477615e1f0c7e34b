"""Requests as the engine takes them: prompts as tokens, lengths filled in, several contexts side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ropewalk.errors import DoesNotFit, InvalidValue, RopewalkError
from ropewalk.serve.api.answering import Answering
from ropewalk.serve.api.conversations import Turn
from ropewalk.serve.api.names import NamedModel
from ropewalk.serve.api.requests.chat import ChatRequest
from ropewalk.serve.api.requests.completion import USUAL, CompletionRequest
from ropewalk.serve.api.requests.fields import RequestFields
from ropewalk.serve.api.requests.texts import Texts
from ropewalk.serve.generation.request import Answer, Request, Sampling, SessionState

if TYPE_CHECKING:
    from ropewalk.methods.decoding import Decoding

Ids = tuple[int, ...]
LONGEST_LINE = 200  # characters of a line of decoding


async def of_completion(
    asked: CompletionRequest, model: NamedModel, texts: Texts, before: SessionState | None
) -> list[Request]:
    """Requests to the engine, `n` for every prompt. `before` is the session that they continue."""
    questions = []
    for prompts in await _completion_prompts(asked, model.carried.carried, texts, before is not None):
        count = min(USUAL, _remaining(model, max(map(len, prompts)))) if asked.max_tokens is None else asked.max_tokens
        for choice in range(asked.n):
            sampling = asked.sampling(choice, count, asked.logprobs)
            wants = asked.echo and asked.logprobs is not None
            questions.append(_request(asked, model, prompts, sampling, after=before, prompt_logprobs=wants))
    return questions


async def _completion_prompts(
    asked: CompletionRequest, most: int | None, texts: Texts, begun: bool
) -> list[tuple[Ids, ...]]:
    if asked.contexts is None:
        return [(await texts.prompt_ids(prompt, begins=not begun, most=most),) for prompt in asked.prompt.items]
    question = await texts.prompt_ids(asked.prompt.items[0], begins=False, most=most)
    if not question:
        raise InvalidValue("prompt", "not empty with contexts: it is the question", "")
    return [tuple([(*await texts.ids(context, most=most), *question) for context in (*asked.contexts, "")])]


async def of_chat(asked: ChatRequest, model: NamedModel, texts: Texts, turn: Turn) -> list[Request]:
    """Requests to the engine, `n` for the conversation."""
    written = [turn.new] if asked.contexts is None else _with_contexts(asked, texts)
    prompts = tuple([await texts.ids(text, begins=False, most=model.carried.carried) for text in written])
    read = 0 if turn.before is None else turn.before.tokens
    count = asked.most or _remaining(model, max(map(len, prompts)) + read)
    alternatives = (asked.top_logprobs or 0) if asked.logprobs else None
    samplings = [asked.sampling(choice, count, alternatives) for choice in range(asked.n)]
    return [_request(asked, model, prompts, sampling, after=turn.before, said=turn.said) for sampling in samplings]


def _with_contexts(asked: ChatRequest, texts: Texts) -> list[str]:
    """The conversation with every context before its last message, and at the end the conversation alone."""
    *before, last = asked.messages.items
    asked_of = [{**last, "content": f"{context}\n\n{last['content']}"} for context in asked.contexts or ()]
    return [texts.rendered([*before, message]) for message in (*asked_of, last)]


def _remaining(model: NamedModel, read: int) -> int:
    """Tokens that an answer may still have; under a reach that forgets, as many as the model was trained on."""
    most = model.carried.carried
    return model.carried.facts.trained_len if most is None else max(most - read, 1)


def _request(
    asked: RequestFields,
    model: NamedModel,
    prompts: tuple[Ids, ...],
    sampling: Sampling,
    **more: Any,
) -> Request:
    if not all(prompts):
        raise InvalidValue("prompt", "at least one token", "an empty text")
    decoding = decoding_of(asked.decoding) if asked.contexts is not None else None
    return Request(model.extension, prompts, sampling, asked.session, decoding, **more)


def decoding_of(line: str | None) -> Decoding:
    """A rule of decoding by its line, such as `mean_pooling:beta=0`; NBCE without one."""
    from ropewalk.extension.parsing import parse
    from ropewalk.methods.decoding import NBCE  # with torch, which is loaded with the engine, and not before

    if line is None:
        return NBCE()
    if len(line) > LONGEST_LINE or line.strip().endswith(".json"):
        raise InvalidValue("decoding", "a line such as nbce:beta=0.25", line)
    try:
        extension = parse(line)
    except RopewalkError as reason:
        raise InvalidValue.because("decoding", f"decoding cannot be read: {reason}") from reason
    rule = extension.decoding
    if rule is None or replace(extension, decoding=None) != type(extension)():
        raise InvalidValue("decoding", "nbce, mean_pooling or max_pooling, with parameters, and nothing else", line)
    return rule


def ask_all(engine: Answering, questions: Sequence[Request]) -> list[Answer]:
    """Begin all answers, or none."""
    if len(questions) > engine.capacity:
        rule = f"at most {engine.capacity:,} answers in all, as many as may run and wait here"
        raise DoesNotFit("n", rule, f"{len(questions):,}", remedy="send fewer prompts, or a smaller n")
    answers = list[Answer]()
    try:
        for question in questions:
            answers.append(engine.ask(question))
    except BaseException:
        for answer in answers:
            answer.cancel()
        raise
    return answers
