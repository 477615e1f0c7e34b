"""Names in figures: shown as they are, whatever characters they have, and cut in the middle where they are long."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Sequence

from ropewalk.extension.notation import BARE

BASE = "base model"
ELLIPSIS = "…"


def name_of(line: str) -> str:
    """What a candidate is called in figures and tables."""
    return BASE if line == BARE else line


def visible(text: str) -> str:
    """Text whose control characters, and bytes that are no text, are written out: XML has no place for them."""
    if text.isprintable():  # as nearly all is: a page has a million characters
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )


def columns(text: str) -> int:
    """The width of text in a fixed-width font, in characters; Chinese ones take two."""
    return sum(1 + (unicodedata.east_asian_width(character) in "FW") for character in text)


def shortened(names: Sequence[str], most: int) -> list[str]:
    """Names of at most so many columns; those that would look alike get their number in the list."""
    shown = [_cut(visible(name), most) for name in names]
    alike = Counter(shown)
    return [
        _cut(visible(name), most - len(f" #{place}")) + f" #{place}" if alike[short] > 1 and short != name else short
        for place, (name, short) in enumerate(zip(names, shown, strict=True), 1)
    ]


def _cut(text: str, most: int) -> str:
    """The beginning and the end, which tell compositions apart better than the beginning alone."""
    if columns(text) <= most:
        return text
    head, tail = text, text
    while columns(head) > (most + 1) // 2 - 1:
        head = head[:-1]
    while columns(tail) > most - columns(head) - 1:
        tail = tail[1:]
    return f"{head}{ELLIPSIS}{tail}"
