"""The text of an answer while its tokens arrive: stop texts end it, and none of them is shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ropewalk.hf.use.growing_text import GrowingText


class TextWriter:
    """The text of one answer while its tokens arrive."""

    def __init__(self, tokenizer: Any, stop: Sequence[str] = ()) -> None:
        self._text, self._stop = GrowingText(tokenizer), [text for text in stop if text]
        self._held = ""  # text that may be the beginning of a stop text
        self.stopped = False

    def push(self, token: int) -> str:
        """The text that is certain with one more token; `stopped` is set where a stop text has ended the answer."""
        new = self._text.push(token)
        return self._certain(new) if new else ""

    def finish(self) -> str:
        """The rest, at the end of the answer."""
        if self.stopped:
            return ""
        rest, self._held = self._held + self._text.rest(), ""
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


def _overlap(text: str, stop: str) -> int:
    """The longest end of a text that a stop text begins with."""
    return next((n for n in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:n])), 0)
