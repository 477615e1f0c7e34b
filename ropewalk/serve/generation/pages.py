"""The memory of keys and values: pages, the texts that hold them, and sessions, texts that stay between requests.

A page holds `size` tokens of every layer, in as many lanes as the most demanding extension needs (a lane is one copy of
the keys, or the values). So all extensions share one memory.

A session's next turn is written into a text of its own, which takes the session's place once the answer is complete.
Until then, and when the turn fails or its client leaves, the session is as it was. Idle sessions make room for requests
that wait.
"""

from __future__ import annotations

import copy
import math
import mmap
from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch import Tensor

from ropewalk.attention.layout.retention import Retention
from ropewalk.errors import Conflict, DoesNotFit
from ropewalk.serve.generation.request import Request, SessionBusy, SessionGone, SessionState

CHUNK = 256  # tokens that are read at once, at most
DEEP = 4096  # tokens before a chunk from which it is half as long, and so on
SMALLEST_CHUNK = 64
NO_PAGE = -1  # forgotten, or not read yet
SPARE_PLACES = 64  # places by which a page table grows


class PagePool:
    """All pages, in one buffer per layer: [pages, key heads, lanes, size, head size]."""

    def __init__(
        self,
        shapes: Sequence[tuple[int, int]],  # of each layer: key heads and their size
        lanes: int,
        *,
        size: int,
        limit: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.size = size
        self.page_bytes = lanes * size * sum(heads * dim for heads, dim in shapes) * dtype.itemsize
        self.count = limit // self.page_bytes
        if self.count < 1:
            rule = f"at least {self.page_bytes / 2**20:.3g} MiB, one page"
            raise DoesNotFit("cache_memory", rule, f"{limit / 2**20:.3g} MiB")
        self.buffers = [_blank((self.count, heads, lanes, size, dim), dtype, device) for heads, dim in shapes]
        self.free = list(range(self.count - 1, -1, -1))
        self._holders = [0] * self.count

    def take(self) -> int:
        """A blank page with one holder."""
        if not self.free:
            raise DoesNotFit.because("cache_memory", "no page is left", remedy="try again, or raise --cache-memory")
        page = self.free.pop()
        self._holders[page] = 1
        return page

    def hold(self, page: int) -> None:
        """One more holder of a page."""
        self._holders[page] += 1

    def release(self, page: int) -> None:
        """One holder less. The page is free once nobody holds it."""
        self._holders[page] -= 1
        if not self._holders[page]:
            self.free.append(page)


class PagedText:
    """The tokens of one text, read and unread, and the pages that hold what was read.

    A text is read in chunks whose borders depend on the position alone, so what it computes does not depend on its
    neighbours: `CHUNK` tokens, and fewer where much text is before them, so that no chunk takes long.
    """

    def __init__(
        self, pool: PagePool, retention: Retention, ids: Sequence[int] = (), *, extension: str = "", kept: bool = False
    ) -> None:
        self.pool, self.size = pool, pool.size
        self.extension = extension  # that computes it
        self.read: list[int] | None = [] if kept else None  # the tokens read, where another extension may follow
        self.first, self.last = retention  # tokens that stay visible: the first ones, and the last ones or None for all
        self.unread = list(ids)
        self.length = 0  # tokens read
        self.held = 0  # pages
        self._table = torch.full((SPARE_PLACES,), NO_PAGE, dtype=torch.int32)
        self._kept_from = 0  # the first place that may hold a page, beside those of the first tokens
        self._lent: frozenset[int] = frozenset()  # pages that the text before this turn holds as well

    @property
    def total(self) -> int:
        """Its tokens, read and unread."""
        return self.length + len(self.unread)

    @property
    def forgotten(self) -> int:
        """How many tokens no later token can see."""
        return 0 if self.last is None else max(0, self.length - self.first - self.last)

    def turn(self) -> PagedText:
        """A copy that continues this text, while this one stays as it is. New tokens go into pages of its own, or
        behind what this text has in its last page."""
        turn = copy.copy(self)
        turn.unread, turn._table = list(self.unread), self._table.clone()
        turn.read = None if self.read is None else list(self.read)
        turn._lent = frozenset(self._table[self._table != NO_PAGE].tolist())
        for page in turn._lent:
            self.pool.hold(page)
        return turn

    def replace(self, before: PagedText) -> None:
        """Take the place of the text before this turn."""
        before.close()
        self._lent = frozenset()

    def chunk(self) -> list[int]:
        """The next tokens to read."""
        halvings = (self.length // DEEP).bit_length()
        size = max(CHUNK >> halvings, SMALLEST_CHUNK, self.size)
        return self.unread[: size - self.length % size]

    def make_room(self, count: int) -> Tensor:
        """Take pages for `count` more tokens; returns the page of every place."""
        end = self._places(self.length + count)
        if end > len(self._table):
            more = torch.full((end - len(self._table) + SPARE_PLACES,), NO_PAGE, dtype=torch.int32)
            self._table = torch.cat([self._table, more])
        for place in range(self._places(self.length), end):
            self._table[place] = self.pool.take()
            self.held += 1
        return self._table[:end]

    def advance(self, count: int) -> None:
        """Note that `count` unread tokens were read, and release the pages that no later token can see."""
        if self.read is not None:
            self.read += self.unread[:count]
        self.unread = self.unread[count:]
        self.length += count
        if self.last is not None:
            end = (self.length - self.last) // self.size
            for place in range(max(self._places(self.first), self._kept_from), end):
                if self._table[place] != NO_PAGE:
                    self._release(place)
            self._kept_from = max(end, self._kept_from)

    def pages_needed(self, length: int) -> int:
        """The most pages that it still takes until the text has `length` tokens. Lent pages free no room."""
        places = self._places(length) - self._places(self.length)
        if self.last is not None:
            unshared = self.held - len(self._lent.intersection(self._table.tolist()) if self._lent else ())
            places = min(places, self._places(self.first) + self._places(self.last + CHUNK) + 1 - unshared)
        return max(0, places)

    def close(self) -> None:
        """Release all pages."""
        for place in (self._table != NO_PAGE).nonzero().flatten().tolist():
            self._release(place)

    def _places(self, tokens: int) -> int:
        return -(-tokens // self.size)

    def _release(self, place: int) -> None:
        self.pool.release(int(self._table[place]))
        self._table[place] = NO_PAGE
        self.held -= 1


class StoredSession:
    """A text under an extension, and the turn that is being written to it."""

    def __init__(self, extension: str, text: PagedText) -> None:
        self.extension, self.text = extension, text
        self.state: SessionState | None = None  # None before its first turn is complete
        self.turn: PagedText | None = None


class Sessions:
    """All sessions; the one unused for longest comes first."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, StoredSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def state(self, name: str) -> SessionState | None:
        """A session after its last complete turn; None where there is no session of this name."""
        session = self._known.get(name)
        if session is not None and session.state is None:
            raise SessionBusy(name)
        return None if session is None else session.state

    def text(self, name: str | None) -> PagedText | None:
        """What a session has read; None of one that is not there."""
        session = None if name is None else self._known.get(name)
        return None if session is None else session.text

    def enter(self, request: Request, new: PagedText) -> PagedText:
        """The text of a session's next turn: what was read, and then the prompt.

        The prompt was made for one state of the session. Under another it would continue what nobody asked it to.

        Args:
            request: the turn.
            new: the text of a new session, or of one that has outgrown the extension that computed it: then all of it
                is read again.
        """
        name = str(request.session)
        session = self._known.get(name)
        if session is None and request.after is not None:
            raise SessionGone(name)
        if session is None:
            session = self._known[name] = StoredSession(request.extension, new)
        elif session.turn is not None or session.state is not request.after:
            raise SessionBusy(name)
        elif session.extension != request.extension:
            sentence = f"session {name!r} uses {session.extension}, and cannot continue under {request.extension}"
            raise Conflict.because("session", sentence, remedy="start another session")
        if session.text.extension == new.extension:
            session.turn = session.text.turn()
        else:
            session.turn, new.unread = new, [*(session.text.read or ()), *session.text.unread]
        session.turn.unread += request.prompts[0]
        self._known.move_to_end(name)
        return session.turn

    def leave(self, name: str, state: SessionState | None) -> None:
        """The turn has ended: with its state where the answer is complete, else it never was."""
        session = self._known[name]
        turn, session.turn = session.turn, None
        if turn is not None and state is not None:
            turn.replace(session.text)
            session.text, session.state = turn, state
        elif turn is not None:
            turn.close()
        if session.state is None:
            del self._known[name]

    def drop(self, name: str) -> bool:
        """End a session; whether there was one."""
        session = self._known.get(name)
        if session is not None and session.turn is not None:
            raise SessionBusy(name)
        if session is not None:
            self._known.pop(name).text.close()
        return session is not None

    def evict(self) -> bool:
        """End the session that is unused for longest; whether there was one."""
        name = next((name for name, session in self._known.items() if session.turn is None), None)
        return name is not None and self.drop(name)


def _blank(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Zeros. On a CPU the system finds memory only when a page is first written.

    numpy's zeros would ask for huge pages, which take the system eight times as long to find.
    """
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    memory = mmap.mmap(-1, math.prod(shape) * dtype.itemsize, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return torch.frombuffer(memory, dtype=dtype).view(shape)
