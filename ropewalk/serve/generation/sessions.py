"""Sessions: texts that stay in memory after an answer, so that the next one continues them.

A turn is written into a text of its own, which takes the session's place once the answer is complete. Until then, and
when the turn fails or its client leaves, the session is as it was. Idle sessions make room for requests that wait.
"""

from __future__ import annotations

from collections import OrderedDict

from ropewalk.errors import Conflict
from ropewalk.serve.generation.pages import PagedText
from ropewalk.serve.generation.request import Request, SessionBusy, SessionGone, SessionState


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

    def enter(self, request: Request, new: PagedText) -> PagedText:
        """The text of a session's next turn: what was read, and then the prompt. `new` is the text of a new session.

        The prompt was made for one state of the session. Under another it would continue what nobody asked it to.
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
            sentence = f"session {name!r} is under {session.extension}, and cannot continue under {request.extension}"
            raise Conflict.because("session", sentence, remedy="begin another session")
        session.turn = session.text.turn()
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
