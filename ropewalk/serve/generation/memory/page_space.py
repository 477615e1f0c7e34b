"""The pages of one extension: who holds which, and which hold the beginning of a text that may come again.

A page that was read whole from a prompt keeps a name: the hash of all tokens up to its end. Another request that begins
alike takes it as it is. Pages with a name stay until their room is needed, the longest unused go first. Only whole
chunks of prompts are named, so what a request computes is the same with and without them.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence

from ropewalk.serve.generation.memory.page_pool import SlabPool

Name = bytes
START: Name = b""


class PageSpace:
    """The pages of one extension in a pool."""

    def __init__(self, pool: SlabPool, lanes: int) -> None:
        self.pool, self.lanes = pool, lanes
        self.per_slab = pool.cells // lanes
        pool.spaces.append(self)
        self._in_use: dict[int, int] = {}  # of borrowed slabs: how many pages are held
        self._free: list[int] = []
        self._holders: dict[int, int] = {}  # of pages in use
        self._unused: OrderedDict[int, None] = OrderedDict()  # named pages that nobody holds
        self._named: dict[Name, int] = {}
        self._name_of: dict[int, Name] = {}

    def take(self) -> int | None:
        """A blank page, held once; None where there is no room."""
        if not self._free and not self._make_free():
            return None
        page = self._free.pop()
        self._count(page, 1)
        self._holders[page] = 1
        return page

    def known(self, name: Name) -> int | None:
        """The page of this name, not held."""
        return self._named.get(name)

    def hold(self, page: int) -> None:
        """One more holder of a page."""
        if page not in self._holders:
            del self._unused[page]
            self._count(page, 1)
        self._holders[page] = self._holders.get(page, 0) + 1

    def release(self, page: int) -> None:
        """One holder less. The last one leaves a named page for others."""
        self._holders[page] -= 1
        if self._holders[page]:
            return
        del self._holders[page]
        self._count(page, -1)
        if page in self._name_of:
            self._unused[page] = None
        else:
            self._free.append(page)

    def name(self, page: int, name: Name) -> None:
        """Let others find a page; the first page of a name stays."""
        if name not in self._named and page not in self._name_of:
            self._named[name], self._name_of[page] = page, name

    def give_back(self) -> bool:
        """Return one slab that nobody uses to the pool; what it remembers is forgotten."""
        slab = next((slab for slab, count in self._in_use.items() if not count), None)
        if slab is None:
            return False
        pages = self.pool.pages_of(slab, self.lanes)
        for page in [page for page in pages if page in self._unused]:
            self._forget(page)
        self._free = [page for page in self._free if page not in pages]
        del self._in_use[slab]
        self.pool.free.append(slab)
        return True

    @property
    def idle(self) -> int:
        """How many pages could be taken without a new slab."""
        return len(self._free) + len(self._unused)

    @property
    def returnable(self) -> int:
        """How many slabs nobody uses."""
        return sum(not count for count in self._in_use.values())

    @property
    def held(self) -> int:
        """How many pages are in use."""
        return len(self._holders)

    def _make_free(self) -> bool:
        """A new slab, else the longest unused page, else a slab that another extension does not use."""
        if self._borrow():
            return True
        if self._unused:
            self._forget(next(iter(self._unused)))
            return True
        return any(space.give_back() for space in self.pool.spaces if space is not self) and self._borrow()

    def _borrow(self) -> bool:
        if not self.pool.free:
            return False
        slab = self.pool.free.pop()
        self._in_use[slab] = 0
        self._free.extend(reversed(self.pool.pages_of(slab, self.lanes)))
        return True

    def _count(self, page: int, change: int) -> None:
        self._in_use[page // self.per_slab] += change

    def _forget(self, page: int) -> None:
        del self._unused[page]
        del self._named[self._name_of.pop(page)]
        self._free.append(page)


def name_after(before: Name, ids: Sequence[int]) -> Name:
    """The name of the page with these tokens, after the page of another name."""
    text = b",".join(b"%d" % token for token in ids)
    return hashlib.blake2b(before + b"|" + text, digest_size=16).digest()
