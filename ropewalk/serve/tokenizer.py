"""The server's copy of the model's tokenizer: texts to token ids and back, in a thread where that takes some time."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any, TypeVar

from ropewalk.errors import DoesNotFit, InvalidValue
from ropewalk.hf.checkpoint.tokens import GrowingText
from ropewalk.serve.requests import Message, Prompt

SHORT = 4_000  # characters that are read within a few milliseconds
MOST_TOKENS = 1_000_000  # of one text
SLACK = 4  # a tokenizer may drop some of a text, such as white space
PIECE = 50_000  # characters that are counted at once
BORDERS = 2  # times the limit: pieces have a few tokens more than the whole

Result = TypeVar("Result")


class ServerTokenizer:
    """The tokenizer as the routes use it; the engine decodes with another copy, in a thread of its own."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = copy.deepcopy(tokenizer)
        self._longest = max(map(len, self._tokenizer.get_vocab()))  # characters of a token
        self._thread = ThreadPoolExecutor(1, "tokenizer")
        self.has_chat = bool(getattr(self._tokenizer, "chat_template", None))

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def encode(
        self, prompt: Prompt, *, begins: bool = True, most: int | None = None, field: str = "prompt"
    ) -> tuple[int, ...]:
        """The tokens of a prompt, which may be tokens already; a text gets the special tokens that begin one.

        A text that is far longer than `most` tokens can be is refused before it is read.
        """
        most = min(MOST_TOKENS, MOST_TOKENS if most is None else most)
        if isinstance(prompt, str) and len(prompt) > SLACK * self._longest * most:
            raise _too_long(prompt, field, most)
        left = Event()  # set when nobody waits any more: a tokenizer itself cannot be interrupted
        try:
            return await self.run(len(prompt), self._encode, prompt, begins, field, most, left)
        except asyncio.CancelledError:
            left.set()
            raise

    def _encode(self, prompt: Prompt, begins: bool, field: str, most: int, left: Event) -> tuple[int, ...]:
        if isinstance(prompt, str):
            if len(prompt) > most:  # it may be far too long, and is counted first
                self._count(prompt, field, most, left)
            return tuple(self._tokenizer(prompt, add_special_tokens=begins, verbose=False)["input_ids"])
        words = len(self._tokenizer)
        if not 0 <= min(prompt) <= max(prompt) < words:
            wrong = next(token for token in prompt if not 0 <= token < words)
            raise DoesNotFit(field, f"token ids from 0 to {words - 1:,}", wrong)
        return prompt

    def _count(self, text: str, field: str, most: int, left: Event) -> None:
        """Refuse a text as soon as its pieces have far more tokens than `most`, or nobody waits for it."""
        count = 0
        for first in range(0, len(text), PIECE):
            piece = text[first : first + PIECE]
            count += len(self._tokenizer(piece, add_special_tokens=False, verbose=False)["input_ids"])
            if count > BORDERS * most or left.is_set():
                raise _too_long(text, field, most)

    def decode(self, ids: Sequence[int], *, skip_special: bool = False) -> str:
        """The text of tokens."""
        text: str = self._tokenizer.decode(list(ids), skip_special_tokens=skip_special)
        return text

    def strings(self, ids: Sequence[int]) -> list[str]:
        """The text of every token; together they are the whole. A character in several tokens belongs to the last."""
        text = GrowingText(self._tokenizer, skip_special=False)
        strings = [text.push(token) for token in ids]
        return [*strings[:-1], strings[-1] + text.rest()]

    async def run(self, length: int, work: Callable[..., Result], *arguments: Any) -> Result:
        """The result of work on a text, in the thread where the text is long."""
        if length <= SHORT:
            return work(*arguments)
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)

    def render(self, messages: Sequence[Message]) -> str:
        """A conversation as the model's chat template writes it, up to where the answer begins."""
        if not self.has_chat:
            sentence = "the model has no chat template, so it cannot answer a conversation"
            raise DoesNotFit.because("messages", sentence, remedy="use /v1/completions")
        try:
            text: str = self._tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True)
        except Exception as reason:  # a template raises whatever it likes
            detail = f"{type(reason).__name__}: {str(reason)[:200]}"
            raise InvalidValue.because("messages", f"the model's chat template refuses them ({detail})") from reason
        return text


def _too_long(text: str, field: str, most: int) -> DoesNotFit:
    several = "send it in several requests of a session"
    remedy = several if most == MOST_TOKENS else "shorten it, or take another extension"
    return DoesNotFit(field, f"at most {most:,} tokens", f"{len(text):,} characters", remedy=remedy)
