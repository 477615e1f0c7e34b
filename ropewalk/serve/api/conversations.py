"""The turns of a session: what the engine has read of it, and what is new."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ropewalk.serve.api.answering import Answering
from ropewalk.serve.api.requests.chat import ChatRequest, Message
from ropewalk.serve.api.requests.fields import RequestFields
from ropewalk.serve.api.requests.texts import Texts
from ropewalk.serve.api.responses.errors import Refusal
from ropewalk.serve.generation.request import SessionGone, SessionState

BEGIN = "begin it with new_session and all of its text"


class Conversation(NamedTuple):
    """What a session keeps of a chat: the messages before its last answer, and the text that they were written as."""

    messages: tuple[Message, ...] = ()
    text: str = ""


class Turn(NamedTuple):
    """What a chat's request adds to its session, if it has one."""

    new: str  # the text to read
    before: SessionState | None = None  # None begins the session
    said: Conversation | None = None  # with this turn


def state_before(asked: RequestFields, engine: Answering) -> SessionState | None:
    """The session that a request continues; None where it begins one, or has none.

    A session that is not there is refused, and not begun: a server that has started again would answer without the
    turns before.
    """
    if asked.session is None:
        return None
    try:
        state = engine.session_state(asked.session)
    except SessionGone:
        if asked.new_session:
            return None
        raise
    if asked.new_session and state is not None:
        sentence = f"session {asked.session!r} is there already; leave new_session out to continue it, or delete it"
        raise Refusal(409, sentence, param="new_session", code="session_exists")
    if state is None and not asked.new_session:
        sentence = f"there is no session {asked.session!r}; sessions end with their server; {BEGIN}"
        raise Refusal(404, sentence, param="session", code="no_session")
    return state


async def turn_of(asked: ChatRequest, engine: Answering, texts: Texts) -> Turn:
    """What a chat's request adds to its session."""
    before = state_before(asked, engine)
    if before is not None and before.said is None:
        sentence = "the session's last turn was no message, so no messages can follow"
        raise Refusal(409, f"{sentence}; use /v1/completions, or another session", param="session", code="no_chat")
    length = len(before.said.text) if before is not None else 0
    length += sum(len(message["content"]) for message in asked.messages.items)
    return await texts.beside(length, _written, asked, before, texts)


def _written(asked: ChatRequest, before: SessionState | None, texts: Texts) -> Turn:
    messages = asked.messages.items
    if before is not None:
        said, new = continued(before.said, texts.answer(before.answer), messages, texts.rendered)
        return Turn(new, before, said)
    text = texts.rendered(messages)
    return Turn(text, None, None if asked.session is None else Conversation(messages, text))


def continued(
    before: Conversation, answer: str, new: Sequence[Message], render: Callable[[Sequence[Message]], str]
) -> tuple[Conversation, str]:
    """The conversation with new messages, and the end of its text that the engine has not read yet.

    The template writes old and new messages anew; what the engine has read must be how that begins. Many templates
    strip an answer of the white space around it.
    """
    messages = (*before.messages, {"role": "assistant", "content": answer}, *new)
    text = render(messages)
    for read in (before.text + answer, before.text + answer.strip()):
        if text.startswith(read):
            return Conversation(messages, text), text[len(read) :]
    sentence = "the model's chat template writes the session's earlier messages in another way once new ones follow"
    remedy = "begin a new session with the whole conversation, or leave session out"
    raise Refusal(409, f"{sentence}; {remedy}", param="session", code="session_differs")
