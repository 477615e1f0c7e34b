"""Tokens to text, one by one: characters of several tokens wait until they are whole, and stop texts end the answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

UNFINISHED = "\ufffd"  # what a tokenizer writes for the first bytes of a character
CONTEXT = 6  # tokens before the new ones that are decoded with them: a word may begin with a space


class TextWriter:
    """The text of one answer while its tokens arrive."""

    def __init__(self, tokenizer: Any, stop: Sequence[str] = ()) -> None:
        self._tokenizer, self._stop = tokenizer, [text for text in stop if text]
        self._ids: list[int] = []  # the last tokens; those before `_read` are written
        self._read = 0
        self._held = ""  # text that may be the beginning of a stop text
        self.stopped = False

    def push(self, token: int) -> str:
        """The text that is certain with one more token; `stopped` is set where a stop text has ended the answer."""
        self._ids.append(token)
        before, after = self._decode(self._ids[: self._read]), self._decode(self._ids)
        if after.endswith(UNFINISHED) or len(after) <= len(before):
            return ""
        self._read = len(self._ids)
        self._ids, self._read = self._ids[-CONTEXT:], min(self._read, CONTEXT)
        return self._certain(after[len(before) :])

    def finish(self) -> str:
        """The rest, at the end of the answer."""
        if self.stopped:
            return ""
        before, after = self._decode(self._ids[: self._read]), self._decode(self._ids)
        rest, self._held = self._held + after[len(before) :], ""
        return self._cut(rest)

    def _certain(self, new: str) -> str:
        text = self._cut(self._held + new)
        if self.stopped:
            return text
        keep = max((_overlap(text, stop) for stop in self._stop), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def _cut(self, text: str) -> str:
        """The text before the stop text that is whole first."""
        ends = [(place + len(stop), place) for stop in self._stop if (place := text.find(stop)) >= 0]
        if not ends:
            return text
        self.stopped, self._held = True, ""
        return text[: min(ends)[1]]

    def _decode(self, ids: list[int]) -> str:
        text: str = self._tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return text


def _overlap(text: str, stop: str) -> int:
    """The longest end of a text that a stop text begins with."""
    return next((n for n in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:n])), 0)
