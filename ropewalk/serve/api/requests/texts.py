"""Texts to token ids and back, by a copy of the model's tokenizer.

In a thread where they take some time, and where they take long in another process, which can be ended.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from ropewalk.errors import DoesNotFit, InvalidValue, RopewalkError
from ropewalk.hf.use.growing_text import GrowingText
from ropewalk.serve.api.requests.chat import Message
from ropewalk.serve.api.requests.completion import Prompt
from ropewalk.serve.api.requests.long_texts import LongTexts

SHORT = 4_000  # characters that are read within a few milliseconds
LONG = 100_000  # characters that are read within some tenths of a second
MOST_TOKENS = 1_000_000  # of one text
SLACK = 4  # a tokenizer may drop some of a text, such as white space
TOKENS_BETWEEN_PAUSES = 1_000  # tokens whose texts are written before somebody may leave

Result = TypeVar("Result")


class Texts:
    """The tokenizer of the server. Texts are read in one thread, long ones one after another in a process."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = copy.deepcopy(tokenizer)  # the engine decodes in a thread of its own
        self._words = len(self._tokenizer)
        self._longest = max(map(len, self._tokenizer.get_vocab()))
        self._reader, self._long_reader = ThreadPoolExecutor(1, "tokenizer"), ThreadPoolExecutor(1, "long texts")
        fast = getattr(self._tokenizer, "backend_tokenizer", None)
        self._long = None if fast is None else LongTexts(fast)

    @property
    def chats(self) -> bool:
        """Whether there is a chat template."""
        return bool(getattr(self._tokenizer, "chat_template", None))

    def close(self) -> None:
        """End the threads, and the process."""
        for reader in (self._reader, self._long_reader):
            reader.shutdown(wait=False, cancel_futures=True)
        if self._long is not None:
            self._long.close()

    async def ids(
        self, text: str, *, begins: bool = True, most: int | None = None, field: str = "prompt"
    ) -> tuple[int, ...]:
        """The tokens of a text, with the special tokens that begin one.

        A text that is far longer than `most` tokens can be is refused before it is read.
        """
        most = min(MOST_TOKENS, MOST_TOKENS if most is None else most)
        if len(text) > SLACK * self._longest * most:
            raise _too_long(field, text, most)
        if len(text) <= LONG or self._long is None:
            return await self.beside(len(text), self._encoded, text, begins)
        job = self._long_reader.submit(self._long.ids, text, begins, most)
        try:
            ids = await asyncio.wrap_future(job)
        except asyncio.CancelledError:
            self._long.stop(text)
            raise
        if ids is None or len(ids) > MOST_TOKENS:
            raise _too_long(field, text, most)
        return ids

    async def prompt_ids(
        self, prompt: Prompt, *, begins: bool = True, most: int | None = None, field: str = "prompt"
    ) -> tuple[int, ...]:
        """The tokens of a prompt, which may be tokens already."""
        if isinstance(prompt, str):
            return await self.ids(prompt, begins=begins, most=most)
        await self.beside(len(prompt), self._require_known, prompt, field)
        return prompt

    def _require_known(self, ids: tuple[int, ...], field: str) -> None:
        if not 0 <= min(ids) <= max(ids) < self._words:
            wrong = next(token for token in ids if not 0 <= token < self._words)
            raise DoesNotFit(field, f"token ids from 0 to {self._words - 1:,}", wrong)

    def _encoded(self, text: str, begins: bool) -> tuple[int, ...]:
        return tuple(self._tokenizer(text, add_special_tokens=begins, verbose=False)["input_ids"])

    def decoded(self, ids: Sequence[int]) -> str:
        """The text of tokens, special ones included."""
        text: str = self._tokenizer.decode(list(ids), skip_special_tokens=False)
        return text

    def answer(self, ids: Sequence[int]) -> str:
        """The text of an answer, without special tokens."""
        text: str = self._tokenizer.decode(list(ids), skip_special_tokens=True)
        return text

    def _strings(self, ids: Sequence[int]) -> Iterator[list[str]]:
        text = GrowingText(self._tokenizer, skip_special=False)
        for first in range(0, len(ids), TOKENS_BETWEEN_PAUSES):
            strings = [text.push(token) for token in ids[first : first + TOKENS_BETWEEN_PAUSES]]
            if first + TOKENS_BETWEEN_PAUSES >= len(ids):
                strings[-1] += text.rest()
            yield strings

    async def strings_of(self, ids: Sequence[int]) -> list[str]:
        """The text of every token; together they are the whole. A character in several tokens belongs to the last."""
        parts, strings = self._strings(ids), list[str]()
        while part := await self.beside(8 * len(ids), next, parts, []):
            strings += part
        return strings

    async def text_of(self, prompt: Prompt) -> str:
        """The text of a prompt, which may be text already."""
        return prompt if isinstance(prompt, str) else await self.beside(len(prompt), self.decoded, prompt)

    async def beside(self, length: int, work: Callable[..., Result], *arguments: Any) -> Result:
        """The result of work on a text, in the thread where the text is long."""
        if length <= SHORT:
            return work(*arguments)
        return await asyncio.get_running_loop().run_in_executor(self._reader, work, *arguments)

    def rendered(self, messages: Sequence[Message], *, answering: bool = True) -> str:
        """A conversation as the model's chat template writes it."""
        if not self.chats:
            sentence = "the model has no chat template, so it cannot answer a conversation"
            raise DoesNotFit.because("messages", sentence, remedy="use /v1/completions")
        try:
            text: str = self._tokenizer.apply_chat_template(
                list(messages), tokenize=False, add_generation_prompt=answering
            )
        except RopewalkError:
            raise
        except Exception as reason:  # a template raises whatever it likes
            detail = f"{type(reason).__name__}: {str(reason)[:200]}"
            raise InvalidValue.because("messages", f"the model's chat template refuses them ({detail})") from reason
        return text


def _too_long(field: str, text: str, most: int) -> DoesNotFit:
    remedy = "shorten it, or take another extension"
    if most == MOST_TOKENS:
        remedy = "send it in several requests of a session"
    return DoesNotFit(field, f"at most {most:,} tokens", f"{len(text):,} characters", remedy=remedy)
