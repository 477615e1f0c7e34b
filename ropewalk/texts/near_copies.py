"""Near copies: texts of which a part stands in known texts.

Code and other text of many long lines is compared by these, which are no coincidence. Elsewhere lines say little: a row
of a file may be a single one, a poem has none that is long, and a copy may be wrapped otherwise. Such a text is also
compared by stretches of bytes, without white space: all known prose is cut into stretches that follow each other, and
the text is searched for them at every byte.

Source: Tridgell & Mackerras 1996, "The rsync algorithm", TR-CS-96-05, for the stretches.
"""

from __future__ import annotations

from typing import NamedTuple

LONG_LINE, PARAGRAPH = 40, 200  # characters of a line that is no coincidence, and of one that is many
ENOUGH_LINES = 20  # long lines, from which on they say enough, if they are half of the text
STRETCH = 48  # bytes without white space: as many letters of English
NEAR_COPY_SHARE = 0.1  # share of a text's long lines or of its bytes, from which on it is a near copy


class Content(NamedTuple):
    """What of a text is compared."""

    lines: list[int]  # hashes of the long ones
    dense: bytes  # all of it without white space; nothing of code
    has_lines: bool  # whether they are enough to compare

    @classmethod
    def of(cls, text: str, *, code: bool) -> Content:
        """The content of a text."""
        lines = [line for line in map(str.strip, text.splitlines()) if len(line) >= LONG_LINE]
        letters = sum(len(line) for line in lines if len(line) <= PARAGRAPH)
        has_lines = code or (len(lines) >= ENOUGH_LINES and 2 * letters >= len(text))
        return cls(list(map(hash, lines)), b"" if code else "".join(text.split()).encode(), has_lines)


class KnownTexts:
    """The contents of known texts."""

    def __init__(self) -> None:
        self._lines, self._stretches = set[int](), set[int]()

    def add(self, content: Content) -> None:
        """Know one more."""
        self._lines.update(content.lines)
        whole = range(0, len(content.dense) - STRETCH + 1, STRETCH)
        self._stretches.update(hash(content.dense[place : place + STRETCH]) for place in whole)

    def have(self, content: Content) -> bool:
        """Whether a text is a near copy of them."""
        if sum(line in self._lines for line in content.lines) > NEAR_COPY_SHARE * len(content.lines):
            return True
        return not content.has_lines and self._copied(content.dense) > NEAR_COPY_SHARE * len(content.dense)

    def _copied(self, text: bytes) -> int:
        """How many bytes of a text stand in known stretches."""
        place = copied = 0
        while place <= len(text) - STRETCH:
            known = hash(text[place : place + STRETCH]) in self._stretches
            copied += STRETCH * known
            place += STRETCH if known else 1
        return copied
