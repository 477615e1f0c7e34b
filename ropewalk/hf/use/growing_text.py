"""Text as it grows: the tokens of a model, one by one, as pieces of text with whole characters."""

from __future__ import annotations

from typing import Any

INCOMPLETE = "\ufffd"  # what an incomplete character is decoded to
MOST_WAITING = 8  # tokens that may wait for the rest of a character; none has more bytes than 4
CONTEXT = 6  # tokens that are decoded again with the next: a decoder drops the space before the first
CHARACTER = 4  # tokens of one character, at most: the context may have to begin so many earlier
MOST_DECODED = 48  # tokens that are decoded together, at most


class GrowingText:
    """The text of tokens while they arrive.

    text = GrowingText(tokenizer)
    for token in tokens: print(text.push(token), end="")
    print(text.rest())
    """

    def __init__(self, tokenizer: Any, *, skip_special: bool = True) -> None:
        self._tokenizer, self._skip_special = tokenizer, skip_special
        self._ids: list[int] = []  # the last tokens
        self._shown = 0  # characters of their text that were returned
        self._waiting = 0  # tokens since then

    def push(self, token: int) -> str:
        """The text that is certain with one more token; an incomplete character waits for its other tokens."""
        self._ids.append(token)
        self._waiting += 1
        text = self._decode(self._ids)
        if text.endswith(INCOMPLETE) and self._waiting < MOST_WAITING:
            return ""
        new, self._shown, self._waiting = text[self._shown :], max(self._shown, len(text)), 0
        if len(self._ids) >= 2 * CONTEXT:
            self._forget_beginning(text)
        return new

    def rest(self) -> str:
        """What waits, at the end."""
        return self._decode(self._ids)[self._shown :]

    def _forget_beginning(self, text: str) -> None:
        """Keep the last tokens, from the beginning of a character: so their text is the end of the whole one."""
        for count in range(CONTEXT, CONTEXT + CHARACTER):
            kept = self._decode(self._ids[-count:])
            if text.endswith(kept) or len(self._ids) >= MOST_DECODED:
                self._ids, self._shown = self._ids[-count:], len(kept)
                return

    def _decode(self, ids: list[int]) -> str:
        text: str = self._tokenizer.decode(
            ids, skip_special_tokens=self._skip_special, clean_up_tokenization_spaces=False
        )
        return text
