"""Sessions: texts that stay in memory after an answer, so that the next one continues them.

A turn is written into a text of its own, which takes the session's place once the answer is whole. Until then, and
where the turn fails or its client leaves, the session is as it was. A session that rests makes room for requests that
wait: the longest unused goes first, for good.
"""

from __future__ import annotations

from collections import OrderedDict

from ropewalk.errors import Conflict
from ropewalk.serve.generation.request import Request, SessionBusy, SessionGone, SessionState
from ropewalk.serve.generation.sequence import Sequence

REMEMBERED = 10_000  # names of evicted sessions


class StoredSession:
    """A text under an extension, and the turn that is being written to it."""

    def __init__(self, name: str, extension: str, sequence: Sequence) -> None:
        self.name, self.extension, self.sequence = name, extension, sequence
        self.state: SessionState | None = None  # none before its first turn is whole
        self.turn: Sequence | None = None


class Sessions:
    """All sessions; the longest unused comes first."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, StoredSession] = OrderedDict()
        self._gone: OrderedDict[str, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def state(self, name: str) -> SessionState | None:
        """A session after its last whole turn; None without one."""
        if name in self._gone:
            raise SessionGone(name)
        session = self._known.get(name)
        if session is not None and session.state is None:
            raise SessionBusy(name)
        return None if session is None else session.state

    def enter(self, request: Request, new: Sequence) -> Sequence:
        """The text of a session's next turn, with the prompt after what was read. `new` is the text of a new session.

        The prompt was made for one state of the session. Under another it would continue what nobody has asked it to.
        """
        name = str(request.session)
        session = self._known.get(name)
        if session is None and request.after is not None:
            raise SessionGone(name)
        if session is None:
            session = self._known[name] = StoredSession(name, request.extension, new)
            self._gone.pop(name, None)
        elif session.turn is not None or session.state is not request.after:
            raise SessionBusy(name)
        elif session.extension != request.extension:
            sentence = f"session {name!r} is under {session.extension}, and cannot continue under {request.extension}"
            raise Conflict.because("session", sentence, remedy="begin another session")
        session.turn = session.sequence.turn()
        session.turn.unread += request.prompts[0]
        self._known.move_to_end(name)
        return session.turn

    def leave(self, name: str, state: SessionState | None) -> None:
        """The turn has ended: with its state where the answer is whole, else it never was."""
        session = self._known[name]
        turn, session.turn = session.turn, None
        if turn is not None and state is not None:
            turn.follow(session.sequence)
            session.sequence, session.state = turn, state
        elif turn is not None:
            turn.close()
        if session.state is None:
            del self._known[name]

    def drop(self, name: str) -> bool:
        """End a session; whether there was one."""
        session = self._known.get(name)
        if session is not None and session.turn is not None:
            raise SessionBusy(name)
        evicted = name in self._gone
        self._gone.pop(name, None)
        if session is not None:
            del self._known[name]
            session.sequence.close()
        return evicted or session is not None

    def evict(self) -> bool:
        """End the longest unused session that rests; whether there was one."""
        session = next((one for one in self._known.values() if one.turn is None), None)
        if session is None:
            return False
        self._gone[session.name] = None  # first, since other threads look for it
        del self._known[session.name]
        session.sequence.close()
        if len(self._gone) > REMEMBERED:
            self._gone.popitem(last=False)
        return True
