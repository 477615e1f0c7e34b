"""One text that is being read: which tokens, in which pages, and what may be forgotten.

Long texts are read in chunks whose borders depend on the position alone: `CHUNK` tokens, and fewer where there is much
before them, so that no chunk takes long. So what a text computes does not depend on its neighbours, nor on whether its
beginning was read before.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence as Ids

import torch
from torch import Tensor

from ropewalk.attention.layout.retention import Retention
from ropewalk.errors import DoesNotFit
from ropewalk.serve.generation.memory.page_space import START, PageSpace, name_after

CHUNK = 256  # tokens that are read at once, at most
DEEP = 4096  # tokens before a chunk from which it is half as long, and so on
SMALLEST_CHUNK = 64
NONE = -1  # no page: forgotten, or not read yet
ROOM = 64  # places that a table grows by


class Sequence:
    """The tokens of one text, read and unread."""

    def __init__(self, space: PageSpace, retention: Retention, ids: Ids[int] = ()) -> None:
        self.space, self.retention, self.size = space, retention, space.pool.size
        self.unread = list(ids)
        self.length = 0  # tokens read
        self.reused = 0  # of these, taken from another text
        self._reused_ids: list[int] = []
        self._table = torch.full((ROOM,), NONE, dtype=torch.int32)
        self._name: bytes | None = START  # of all that was read, while only whole chunks were
        self._kept_from = 0  # the first place that may hold a page, beside those of the first tokens
        self._held = 0
        self._lent: frozenset[int] = frozenset()  # pages that the text before this turn holds as well

    @property
    def pages(self) -> Tensor:
        """The page of every place."""
        return self._table[: -(-self.length // self.size)]

    @property
    def total(self) -> int:
        """Its tokens, read and unread."""
        return self.length + len(self.unread)

    @property
    def held(self) -> int:
        """How many pages it holds."""
        return self._held

    @property
    def forgotten(self) -> int:
        """How many tokens no later token can see."""
        first, last = self.retention
        return 0 if last is None else max(0, self.length - first - last)

    def reuse(self) -> None:
        """Take the longest known beginning of an unread text. At least one token stays unread."""
        most = (len(self.unread) - 1) // CHUNK * CHUNK
        names = self._names(most)
        for end in range(most, 0, -CHUNK):
            needed = self._needed(end)
            pages = [self.space.known(names[place]) for place in needed]
            if None not in pages:
                self._take_over(end, dict(zip(needed, pages, strict=True)), names)  # type: ignore[arg-type]
                return

    def give_up_reuse(self) -> None:
        """Return what `reuse` took, before anything else was read."""
        if self.reused == self.length and self.reused:
            self.close()
            self.unread, self._reused_ids = self._reused_ids + self.unread, []
            self.length = self.reused = 0
            self._name = START

    def turn(self) -> Sequence:
        """The same text, to be continued while this one stays as it is. What comes is stored in pages of its own, or
        behind what this one has in its last page."""
        one = copy.copy(self)
        one.unread, one._table = list(self.unread), self._table.clone()
        held = self._table[self._table != NONE].tolist()
        for page in held:
            self.space.hold(page)
        one._lent = frozenset(held)
        return one

    def follow(self, before: Sequence) -> None:
        """Take the place of the text before this turn."""
        before.close()
        self._lent = frozenset()

    def chunk(self) -> list[int]:
        """The next tokens to read."""
        size = self._chunk_size
        return self.unread[: size - self.length % size]

    def make_room(self, count: int) -> Tensor:
        """Pages for so many more tokens; the page of every place with them."""
        end = -(-(self.length + count) // self.size)
        if end > len(self._table):
            more = torch.full((end - len(self._table) + ROOM,), NONE, dtype=torch.int32)
            self._table = torch.cat([self._table, more])
        for place in range(-(-self.length // self.size), end):
            self._put(place)
        return self._table[:end]

    def advance(self, count: int) -> None:
        """So many of the unread tokens were read."""
        ids, self.unread = self.unread[:count], self.unread[count:]
        whole = self.length % self._chunk_size == 0 and count == self._chunk_size
        before, self.length = self.length, self.length + count
        self._name = self._named(before, ids) if whole and self._name is not None else None
        self._forget()

    def pages_needed(self, length: int) -> int:
        """How many more pages it takes, at most, until the text has so many tokens. Lent pages make no room."""
        first, last = self.retention
        places = -(-length // self.size) - -(-self.length // self.size)
        if last is not None:
            unshared = self._held - len(self._lent.intersection(self._table.tolist()) if self._lent else ())
            places = min(places, -(-first // self.size) + -(-(last + CHUNK) // self.size) + 1 - unshared)
        return max(0, places)

    def close(self) -> None:
        """Release all pages."""
        for place in (self._table != NONE).nonzero().flatten().tolist():
            self._release(place)

    @property
    def _chunk_size(self) -> int:
        """The tokens between two borders, here."""
        halvings = (self.length // DEEP).bit_length()
        return max(CHUNK >> halvings, SMALLEST_CHUNK, self.size)

    def _names(self, length: int) -> list[bytes]:
        """The names of the pages of the beginning."""
        names, name = [], START
        for start in range(0, length, self.size):
            name = name_after(name, self.unread[start : start + self.size])
            names.append(name)
        return names

    def _needed(self, end: int) -> list[int]:
        """The places that a token after `end` tokens, or a later one, can see."""
        first, last = self.retention
        places = range(end // self.size)
        if last is None:
            return list(places)
        return [place for place in places if place * self.size < first or (place + 1) * self.size > end - last]

    def _take_over(self, end: int, pages: dict[int, int], names: list[bytes]) -> None:
        places = end // self.size
        if places > len(self._table):
            self._table = torch.full((places + ROOM,), NONE, dtype=torch.int32)
        for place, page in pages.items():
            self.space.hold(page)
            self._table[place] = page
        self._held, self._name = len(pages), names[places - 1]
        self.length = self.reused = end
        self._reused_ids, self.unread = self.unread[:end], self.unread[end:]

    def _named(self, before: int, ids: list[int]) -> bytes | None:
        """Name the pages of a whole chunk; the name of all that was read."""
        name = self._name
        for start in range(0, len(ids), self.size):
            name = name_after(name or START, ids[start : start + self.size])
            self.space.name(int(self._table[(before + start) // self.size]), name)
        return name

    def _forget(self) -> None:
        """Release the pages that no later token can see."""
        first, last = self.retention
        if last is None:
            return
        start, end = -(-first // self.size), (self.length - last) // self.size
        for place in range(max(start, self._kept_from), end):
            if self._table[place] != NONE:
                self._release(place)
        self._kept_from = max(end, self._kept_from)

    def _put(self, place: int) -> None:
        page = self.space.take()
        if page is None:
            raise DoesNotFit.because("cache_memory", "no page is left, though room was reserved")
        self._table[place] = page
        self._held += 1

    def _release(self, place: int) -> None:
        self.space.release(int(self._table[place]))
        self._table[place] = NONE
        self._held -= 1
