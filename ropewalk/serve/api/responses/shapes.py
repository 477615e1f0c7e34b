"""Answers as OpenAI writes them: of completions and of chats, whole or in chunks."""

from __future__ import annotations

import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

from ropewalk.serve.api.responses.compact_json import compact_json
from ropewalk.serve.api.responses.logprobs import TextPlace, Written, of_chat, of_completion
from ropewalk.serve.api.responses.usage import usage_of
from ropewalk.serve.generation.request import Delta, Token, Usage


class Wanted(NamedTuple):
    """What of an answer is shown, besides its text."""

    n: int = 1  # answers to every prompt
    logprobs: bool = False
    usage: bool = False  # in a stream, a last chunk with the usage


class Shape(ABC):
    """One response: its chunks while it is streamed, or its body."""

    kind, prefix, chunk_kind = "", "", ""

    def __init__(self, model: str, written: Written, wanted: Wanted) -> None:
        self._written, self._wanted = written, wanted
        self._head = {"id": f"{self.prefix}-{uuid.uuid4().hex}", "created": int(time.time()), "model": model}

    @property
    def shows_usage(self) -> bool:
        """Whether a stream ends with the usage."""
        return self._wanted.usage

    @abstractmethod
    def opening(self, count: int) -> list[dict[str, Any]]:
        """Choices of a stream before the first deltas."""

    @abstractmethod
    def choice(self, index: int, delta: Delta) -> dict[str, Any]:
        """A choice of a chunk."""

    @abstractmethod
    def complete(self, index: int, text: str, tokens: Sequence[Token], last: Delta) -> dict[str, Any]:
        """A choice of a body."""

    def event(self, choices: list[dict[str, Any]], usage: dict[str, Any] | None = None) -> bytes:
        """One event of the stream."""
        chunk = {**self._head, "object": self.chunk_kind, "choices": choices}
        if self._wanted.usage:
            chunk["usage"] = usage
        return event(chunk)

    def usage(self, usages: Sequence[Usage]) -> dict[str, Any]:
        """The usage of all answers."""
        return usage_of(usages, self._wanted.n)

    def body(self, deltas: Sequence[Sequence[Delta]]) -> dict[str, Any]:
        """The whole response, from the deltas of every answer."""
        choices = [self._whole(index, parts) for index, parts in enumerate(deltas)]
        usages = [usage for parts in deltas if (usage := parts[-1].usage) is not None]
        return {**self._head, "object": self.kind, "choices": choices, "usage": self.usage(usages)}

    def _whole(self, index: int, parts: Sequence[Delta]) -> dict[str, Any]:
        tokens = [*parts[0].prompt, *(token for delta in parts for token in delta.tokens)]
        return self.complete(index, "".join(delta.text for delta in parts), tokens, parts[-1])


class CompletionShape(Shape):
    """Of `/v1/completions`. `echoes` are the texts of the prompts, where they are repeated."""

    kind, prefix, chunk_kind = "text_completion", "cmpl", "text_completion"

    def __init__(self, model: str, written: Written, wanted: Wanted, echoes: Sequence[str] = ()) -> None:
        super().__init__(model, written, wanted)
        self._echoes = echoes
        self._places = dict[int, TextPlace]()

    def opening(self, count: int) -> list[dict[str, Any]]:
        """The prompts, where they are repeated; with log-probabilities they wait for those."""
        if not self._echoes or self._wanted.logprobs:
            return []
        return [{"index": n, "text": self._echo(n), "logprobs": None, "finish_reason": None} for n in range(count)]

    def choice(self, index: int, delta: Delta) -> dict[str, Any]:
        """New text."""
        tokens = [*delta.prompt, *delta.tokens]
        echoed = self._wanted.logprobs and index not in self._places
        text = self._echo(index) + delta.text if echoed else delta.text
        return self._choice(index, text, tokens, delta)

    def complete(self, index: int, text: str, tokens: Sequence[Token], last: Delta) -> dict[str, Any]:
        """All of the text."""
        return self._choice(index, self._echo(index) + text, tokens, last)

    def _choice(self, index: int, text: str, tokens: Sequence[Token], delta: Delta) -> dict[str, Any]:
        logprobs = self._logprobs(index, tokens) if self._wanted.logprobs else None
        return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": delta.finish_reason}

    def _logprobs(self, index: int, tokens: Sequence[Token]) -> dict[str, Any]:
        place = self._places.get(index, TextPlace())
        logprobs, self._places[index] = of_completion(tokens, self._written, place)
        return logprobs

    def _echo(self, index: int) -> str:
        return self._echoes[index // self._wanted.n] if self._echoes else ""


class ChatShape(Shape):
    """Of `/v1/chat/completions`."""

    kind, prefix, chunk_kind = "chat.completion", "chatcmpl", "chat.completion.chunk"

    def opening(self, count: int) -> list[dict[str, Any]]:
        """Who speaks."""
        return [self._delta(n, {"role": "assistant", "content": ""}, None, None) for n in range(count)]

    def choice(self, index: int, delta: Delta) -> dict[str, Any]:
        """New text."""
        new = {"content": delta.text} if delta.text or not delta.finish_reason else {}
        return self._delta(index, new, self._logprobs(delta.tokens), delta.finish_reason)

    def complete(self, index: int, text: str, tokens: Sequence[Token], last: Delta) -> dict[str, Any]:
        """The answer as a message."""
        message = {"role": "assistant", "content": text, "refusal": None}
        logprobs = self._logprobs(tokens)
        return {"index": index, "message": message, "logprobs": logprobs, "finish_reason": last.finish_reason}

    def _logprobs(self, tokens: Sequence[Token]) -> dict[str, Any] | None:
        return of_chat(tokens, self._written) if self._wanted.logprobs and tokens else None

    def _delta(self, index: int, new: dict[str, str], logprobs: Any, reason: str | None) -> dict[str, Any]:
        return {"index": index, "delta": new, "logprobs": logprobs, "finish_reason": reason}


def event(value: dict[str, Any]) -> bytes:
    """A server-sent event.

    event({"a": 1}) == b'data: {"a":1}' + b"\\n\\n"
    """
    return b"data: " + compact_json(value).encode() + b"\n\n"
