"""Texts to token ids and back, by a copy of the model's tokenizer, beside the event loop where they are long."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from ropewalk.errors import DoesNotFit, InvalidValue, RopewalkError
from ropewalk.hf.use.growing_text import GrowingText
from ropewalk.serve.api.requests.chat import Message
from ropewalk.serve.api.requests.completion import Prompt

SHORT = 4_000  # characters that are read within a few milliseconds
SLACK = 4  # a tokenizer may drop some of a text, such as white space

Result = TypeVar("Result")


class Texts:
    """The tokenizer of the server. Long texts are read in one thread, one after another."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = copy.deepcopy(tokenizer)  # the engine decodes in a thread of its own
        self._words = len(self._tokenizer)
        self._longest = max(map(len, self._tokenizer.get_vocab()))
        self._reader = ThreadPoolExecutor(1, "tokenizer")

    @property
    def chats(self) -> bool:
        """Whether there is a chat template."""
        return bool(getattr(self._tokenizer, "chat_template", None))

    def close(self) -> None:
        """End the thread."""
        self._reader.shutdown(wait=False, cancel_futures=True)

    async def ids(self, text: str, *, begins: bool = True, most: int | None = None) -> tuple[int, ...]:
        """The tokens of a text, with the special tokens that begin one.

        A text that is far longer than `most` tokens can be is refused before it is read.
        """
        if most is not None and len(text) > SLACK * self._longest * most:
            remedy = "shorten it, or take another extension"
            raise DoesNotFit("prompt", f"at most {most:,} tokens", f"{len(text):,} characters", remedy=remedy)
        return await self._beside(len(text), self._encoded, text, begins)

    async def prompt_ids(
        self, prompt: Prompt, *, begins: bool = True, most: int | None = None, field: str = "prompt"
    ) -> tuple[int, ...]:
        """The tokens of a prompt, which may be tokens already."""
        if isinstance(prompt, str):
            return await self.ids(prompt, begins=begins, most=most)
        if not 0 <= min(prompt) <= max(prompt) < self._words:
            wrong = next(token for token in prompt if not 0 <= token < self._words)
            raise DoesNotFit(field, f"token ids from 0 to {self._words - 1:,}", wrong)
        return prompt

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

    def strings(self, ids: Sequence[int]) -> list[str]:
        """The text of every token; together they are the whole. A character in several tokens belongs to the last."""
        text = GrowingText(self._tokenizer, skip_special=False)
        strings = [text.push(token) for token in ids]
        return [*strings[:-1], strings[-1] + text.rest()] if strings else []

    async def strings_of(self, ids: Sequence[int]) -> list[str]:
        """The same, beside the event loop where there are many."""
        return await self._beside(8 * len(ids), self.strings, ids)

    async def text_of(self, prompt: Prompt) -> str:
        """The text of a prompt, which may be text already."""
        return prompt if isinstance(prompt, str) else await self._beside(len(prompt), self.decoded, prompt)

    async def _beside(self, length: int, work: Callable[..., Result], *arguments: Any) -> Result:
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
