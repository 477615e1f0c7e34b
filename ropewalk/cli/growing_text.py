"""Text as it grows: the tokens of a model as pieces of text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

INCOMPLETE = "\ufffd"  # what an incomplete character is decoded to
LONGEST = 64  # tokens of a line that are decoded together


def pieces(tokenizer: Any, tokens: Iterable[int]) -> Iterator[str]:
    """Text as it grows; a piece is held back while its last character may be incomplete.

    Finished lines are not decoded again, except their last token: decoders need it to keep a leading space.
    """
    line: list[int] = []
    printed, text = 0, ""
    for token in tokens:
        line.append(token)
        text = tokenizer.decode(line, skip_special_tokens=True)
        if text.endswith(INCOMPLETE):
            continue
        yield text[printed:]
        printed = len(text)
        if text.endswith("\n") or len(line) >= LONGEST:
            line = [token]
            text = tokenizer.decode(line, skip_special_tokens=True)
            printed = len(text)
    if len(text) > printed:
        yield text[printed:]
