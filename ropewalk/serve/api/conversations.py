"""What a chat's session has said so far: the messages whose rendering the engine has read."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from ropewalk.files import read_record
from ropewalk.folders import write_whole
from ropewalk.serve.api.requests.chat import Message
from ropewalk.serve.api.responses.errors import Refusal
from ropewalk.serve.session_files import CHAT, KEYS, session_file

MOST = 10_000  # conversations; the engine evicts its sessions long before


class Conversation(NamedTuple):
    """Messages, and the text of them that the engine has read."""

    messages: tuple[Message, ...] = ()
    read: str = ""  # before the last answer
    answer: str = ""


class Conversations:
    """The conversations of all sessions, those used last at the end; in a folder, where sessions outlive the server."""

    def __init__(self, folder: Path | None = None) -> None:
        self._of = OrderedDict[str, Conversation]()
        self._folder = folder

    def get(self, session: str) -> Conversation | None:
        """The conversation of a session, if it is one."""
        return self._of.get(session) or self._restored(session)

    def keep(self, session: str, conversation: Conversation) -> None:
        """Store what the engine has read."""
        self._of[session] = conversation
        self._of.move_to_end(session)
        while len(self._of) > MOST:
            self._of.popitem(last=False)
        path = self._path(session)
        if path is not None:
            write_whole(path, json.dumps(conversation._asdict()))

    def drop(self, session: str) -> None:
        """Forget a conversation."""
        self._of.pop(session, None)
        path = self._path(session)
        if path is not None:
            path.unlink(missing_ok=True)

    def _path(self, session: str, ending: str = CHAT) -> Path | None:
        return None if self._folder is None else session_file(self._folder, session, ending)

    def _restored(self, session: str) -> Conversation | None:
        path, keys = self._path(session), self._path(session, KEYS)
        if path is None or keys is None or not path.exists() or not keys.exists():  # a killed server saved no keys
            return None
        stored = read_record(path, "a conversation")
        return Conversation(tuple(stored["messages"]), stored["read"], stored["answer"])


def continued(
    before: Conversation, new: Sequence[Message], render: Callable[[Sequence[Message]], str]
) -> tuple[tuple[Message, ...], str, str]:
    """All messages, their text, and the end of it that the engine has not read yet.

    The template writes old and new messages anew; what the engine has read must be how that begins. Many templates
    strip an answer of the white space around it.
    """
    messages = (*before.messages, *new)
    text = render(messages)
    for answer in (before.answer, before.answer.strip()):
        if text.startswith(before.read + answer):
            return messages, text, text[len(before.read + answer) :]
    sentence = "the model's chat template writes the session's earlier messages in another way once new ones follow"
    remedy = "begin a new session with the whole conversation, or leave session out"
    raise Refusal(409, f"{sentence}; {remedy}", param="session", code="session_differs")


def answered(messages: Sequence[Message], text: str, answer: str) -> Conversation:
    """The conversation with its answer."""
    return Conversation((*messages, {"role": "assistant", "content": answer}), text, answer)
