"""What a client sent, as requests to the engine: prompts as tokens, lengths filled in, contexts and sessions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from ropewalk.errors import InvalidValue, RopewalkError
from ropewalk.serve.generation.request import Request, SessionState
from ropewalk.serve.refusals import Refusal
from ropewalk.serve.requests import ChatRequest, CompletionRequest, Message, RequestFields, names_a_file
from ropewalk.serve.service import NamedModel, ServedModels

if TYPE_CHECKING:
    from ropewalk.methods.decoding import Decoding

USUAL_SHARE = 4  # the part of the trained length that an answer may have where a factor is chosen by its limit
USUAL_TOKENS = 16  # of a completion, as OpenAI has it
LONGEST_DECODING = 200  # characters of a line of decoding

Ids = tuple[int, ...]


class Conversation(NamedTuple):
    """What a session keeps of a chat: the messages before its last answer, and the text that they were written as."""

    messages: tuple[Message, ...]
    text: str


async def completion_requests(fields: CompletionRequest, model: NamedModel, models: ServedModels) -> list[Request]:
    """Requests to the engine, `n` for every prompt."""
    before, most, encode = _state_before(fields, models), model.served.max_len, models.tokenizer.encode
    prompts: list[tuple[Ids, ...]]
    if fields.contexts is None:
        prompts = [(await encode(text, begins=before is None, most=most),) for text in fields.prompt.items]
    else:
        question = await encode(fields.prompt.items[0], begins=False, most=most)
        if not question:
            raise InvalidValue("prompt", "not empty with contexts: it is the question", "")
        prompts = [tuple([(*await encode(context), *question) for context in (*fields.contexts, "")])]
    requests = []
    for prompt in prompts:
        room = _remaining(model, max(map(len, prompt)))
        count = min(USUAL_TOKENS, room) if fields.max_tokens is None else fields.max_tokens
        scores = fields.echo and fields.logprobs is not None
        requests += _requests(fields, model, prompt, count, fields.logprobs, after=before, prompt_logprobs=scores)
    return requests


async def chat_requests(fields: ChatRequest, model: NamedModel, models: ServedModels) -> list[Request]:
    """Requests to the engine, `n` for the conversation."""
    before, tokenizer, messages = _state_before(fields, models), models.tokenizer, fields.messages.items
    if before is not None and before.said is None:
        sentence = "the session's last turn came from /v1/completions, so messages cannot follow"
        raise Refusal(409, f"{sentence}; use that again, or another session", param="session", code="no_chat")
    length = len(before.said.text) if before is not None else 0
    length += sum(len(message["content"]) for message in messages)
    said = None
    if before is not None:
        answer = tokenizer.decode(before.answer, skip_special=True)
        said, new = await tokenizer.run(length, continue_chat, before.said, answer, messages, tokenizer.render)
        texts = [new]
    elif fields.contexts is None:
        texts = [await tokenizer.run(length, tokenizer.render, messages)]
        said = None if fields.session is None else Conversation(messages, texts[0])
    else:  # every context stands before the question, and at the end comes the conversation alone
        *earlier, last = messages
        asked = [{**last, "content": f"{context}\n\n{last['content']}"} for context in fields.contexts]
        texts = [tokenizer.render([*earlier, question]) for question in (*asked, last)]
    prompt = tuple([await tokenizer.encode(text, begins=False, most=model.served.max_len) for text in texts])
    room = _remaining(model, max(map(len, prompt)) + (0 if before is None else before.tokens))
    count = fields.max_tokens or fields.max_completion_tokens or room
    alternatives = (fields.top_logprobs or 0) if fields.logprobs else None
    return _requests(fields, model, prompt, count, alternatives, after=before, said=said)


def _remaining(model: NamedModel, read: int) -> int:
    """Tokens that an answer may still have; under a reach that forgets, as many as the model was trained on.

    Where a factor is chosen for each request, an answer without a limit must not ask for the largest.
    """
    most, trained_len = model.served.max_len, model.served.facts.trained_len
    if most is None:
        return trained_len
    left = most - read
    if model.served.by_length:
        left = min(left, trained_len // USUAL_SHARE)
    return max(left, 1)


def _requests(
    fields: RequestFields, model: NamedModel, prompt: tuple[Ids, ...], count: int, alternatives: int | None, **more: Any
) -> list[Request]:
    if not all(prompt):
        raise InvalidValue("prompt", "at least one token", "an empty text")
    decoding = _read_decoding(fields.decoding) if fields.contexts is not None else None
    samplings = [fields.sampling(choice, count, alternatives) for choice in range(fields.n)]
    return [Request(model.extension, prompt, sampling, fields.session, decoding, **more) for sampling in samplings]


def _read_decoding(line: str | None) -> Decoding:
    """A rule of decoding by its line, such as `mean_pooling:beta=0`; NBCE without one."""
    from ropewalk.extension.parsing import parse
    from ropewalk.methods.decoding import NBCE  # with torch, which is loaded with the engine, and not before

    if line is None:
        return NBCE()
    if len(line) > LONGEST_DECODING or names_a_file(line):
        raise InvalidValue("decoding", "a line such as nbce:beta=0.25", line)
    try:
        extension = parse(line)
    except RopewalkError as reason:
        raise InvalidValue.because("decoding", f"decoding cannot be read: {reason}") from reason
    rule = extension.decoding
    of_rows = rule is not None and rule.of_contexts and not rule.of_attention
    if rule is None or not of_rows or replace(extension, decoding=None) != type(extension)():
        raise InvalidValue("decoding", "nbce, mean_pooling or max_pooling, with parameters, and nothing else", line)
    return rule


def _state_before(fields: RequestFields, models: ServedModels) -> SessionState | None:
    """The session that a request continues; None where it begins one, or has none.

    A session that is not there is refused, and not begun: a server that has started again would answer without the
    turns before.
    """
    if fields.session is None:
        return None
    state = models.engine.session_state(fields.session)
    if fields.new_session and state is not None:
        sentence = f"session {fields.session!r} already exists; leave new_session out to continue it, or delete it"
        raise Refusal(409, sentence, param="new_session", code="session_exists")
    if state is None and not fields.new_session:
        why = "it may have been evicted to make room, or the server has restarted"
        sentence = f"there is no session {fields.session!r}; {why}; start it with new_session and the whole text"
        raise Refusal(404, sentence, param="session", code="no_session")
    return state


def continue_chat(
    before: Conversation, answer: str, new: Sequence[Message], render: Callable[[Sequence[Message]], str]
) -> tuple[Conversation, str]:
    """The conversation with new messages, and the end of its text that the engine has not read yet.

    The template writes old and new messages anew; what the engine has read must be how that begins. Many templates
    strip the white space around an answer.

    Args:
        before: what the session keeps of its earlier turns.
        answer: the last answer, which `before` does not have yet.
        new: the messages that were sent now.
        render: writes messages by the chat template.
    """
    messages = (*before.messages, {"role": "assistant", "content": answer}, *new)
    text = render(messages)
    for read in (before.text + answer, before.text + answer.strip()):
        if text.startswith(read):
            return Conversation(messages, text), text[len(read) :]
    sentence = "the model's chat template renders the session's earlier messages differently once new ones follow"
    remedy = "start a new session with the whole conversation, or leave session out"
    raise Refusal(409, f"{sentence}; {remedy}", param="session", code="session_differs")
