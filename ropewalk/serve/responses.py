"""Answers in OpenAI's two formats, whole or in the chunks of a stream."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ropewalk.hf.checkpoint.tokens import INCOMPLETE, MOST_WAITING
from ropewalk.serve.generation.request import Token, Usage
from ropewalk.serve.requests import ChatRequest, CompletionRequest

LOWEST = -9999.0  # JSON has no infinity

Decode = Callable[[Sequence[int]], str]


def compact_json(value: Any) -> str:
    """A value as JSON without spaces."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


class Format:
    """One response: its chunks while it is streamed, or its body."""

    prefix, kind, chunk_kind = "", "", ""

    def __init__(self, model: str, fields: CompletionRequest | ChatRequest, decode: Decode) -> None:
        self.n, self.shows_usage = fields.n, fields.include_usage
        self.logprobs = fields.logprobs is not None and fields.logprobs is not False  # a completion's may be 0
        self._decode = decode
        self._head = {"id": f"{self.prefix}-{uuid.uuid4().hex}", "created": int(time.time()), "model": model}

    def opening(self, index: int) -> dict[str, Any] | None:
        """The choice of a stream before the first token, if there is one."""
        return None

    def choice(self, index: int, tokens: Sequence[Token], *, whole: bool) -> dict[str, Any]:
        """The new tokens of an answer in a chunk, or all of them in a body."""
        raise NotImplementedError

    def chunk(self, choices: list[dict[str, Any]], usage: dict[str, Any] | None = None) -> dict[str, Any]:
        """One chunk of a stream."""
        shown = {"usage": usage} if self.shows_usage else {}
        return {**self._head, "object": self.chunk_kind, "choices": choices, **shown}

    def body(self, answers: Sequence[Sequence[Token]], usages: Sequence[Usage]) -> dict[str, Any]:
        """The whole response."""
        choices = [self.choice(index, tokens, whole=True) for index, tokens in enumerate(answers)]
        return {**self._head, "object": self.kind, "choices": choices, "usage": usage_of(usages, self.n)}


class CompletionFormat(Format):
    """Of `/v1/completions`. `echoes` are the texts of the prompts, where they are repeated."""

    prefix, kind, chunk_kind = "cmpl", "text_completion", "text_completion"

    def __init__(self, model: str, fields: CompletionRequest, decode: Decode, echoes: Sequence[str] = ()) -> None:
        super().__init__(model, fields, decode)
        self._echoes = echoes
        self._places = dict[int, TextPlace]()  # where the text of each answer goes on

    def choice(self, index: int, tokens: Sequence[Token], *, whole: bool) -> dict[str, Any]:
        """Text; the first has the echo before it."""
        text, logprobs = "".join(token.text for token in tokens), None
        if index not in self._places:
            self._places[index] = TextPlace()
            text = (self._echoes[index // self.n] if self._echoes else "") + text
        if self.logprobs:
            logprobs, self._places[index] = completion_logprobs(tokens, self._decode, self._places[index])
        return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": tokens[-1].finish_reason}


class ChatFormat(Format):
    """Of `/v1/chat/completions`."""

    prefix, kind, chunk_kind = "chatcmpl", "chat.completion", "chat.completion.chunk"

    def opening(self, index: int) -> dict[str, Any]:
        """Who speaks."""
        delta = {"role": "assistant", "content": ""}
        return {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}

    def choice(self, index: int, tokens: Sequence[Token], *, whole: bool) -> dict[str, Any]:
        """A message, or what is new of it."""
        text, reason = "".join(token.text for token in tokens), tokens[-1].finish_reason
        content = {"content": text} if text or not reason else {}
        shown = {"message": {"role": "assistant", "content": text, "refusal": None}} if whole else {"delta": content}
        chosen = [token for token in tokens if token.id is not None]
        logprobs = chat_logprobs(chosen, self._decode) if self.logprobs and chosen else None
        return {"index": index, **shown, "logprobs": logprobs, "finish_reason": reason}


def usage_of(usages: Sequence[Usage], n: int) -> dict[str, Any]:
    """The usage of all answers; `n` of them share a prompt, which counts once."""
    prompts = usages[::n]
    read, written = sum(one.prompt_tokens for one in prompts), sum(one.completion_tokens for one in usages)
    shown: dict[str, Any] = {
        "prompt_tokens": read,
        "completion_tokens": written,
        "total_tokens": read + written,
    }
    if usages and usages[0].session_tokens is not None:
        shown["session"] = {"tokens": usages[0].session_tokens, "forgotten_tokens": usages[0].forgotten_tokens or 0}
    return shown


class TextPlace(NamedTuple):
    """Where the next token begins: the characters before it, and tokens of a character that is not whole yet."""

    offset: int = 0
    pending: tuple[int, ...] = ()

    def after(self, token: int, decode: Decode) -> TextPlace:
        """The place after one more token. The tokens of one character all begin where it begins."""
        pending = (*self.pending, token)
        text = decode(pending)
        if text.endswith(INCOMPLETE) and len(pending) < MOST_WAITING:
            return TextPlace(self.offset, pending)
        return TextPlace(self.offset + len(text))


def completion_logprobs(
    tokens: Sequence[Token], decode: Decode, place: TextPlace
) -> tuple[dict[str, list[Any]], TextPlace]:
    """Lists by token, as completions have them, and the place in the text after them."""
    lists: dict[str, list[Any]] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
    for token in tokens:
        if token.id is None:
            continue
        string, logprob, top = decode([token.id]), None, None
        if token.logprob is not None:  # else it is the first of a text, which nothing predicts
            logprob = max(token.logprob, LOWEST)
            top = {**{decode([id]): max(other, LOWEST) for id, other in token.top}, string: logprob}
        for values, value in zip(lists.values(), (string, logprob, top, place.offset), strict=True):
            values.append(value)
        place = place.after(token.id, decode)
    return lists, place


def chat_logprobs(tokens: Sequence[Token], decode: Decode) -> dict[str, Any]:
    """An object by token, as chats have them."""

    def entry(id: int | None, logprob: float | None) -> dict[str, Any]:
        string = decode([id or 0])
        whole = None if INCOMPLETE in string else list(string.encode())
        return {"token": string, "logprob": max(logprob or 0.0, LOWEST), "bytes": whole}

    content = [
        {**entry(token.id, token.logprob), "top_logprobs": [entry(*other) for other in token.top]} for token in tokens
    ]
    return {"content": content, "refusal": None}
