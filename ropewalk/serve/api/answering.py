"""What the API needs of the engine, and nothing more: `ropewalk.serve.generation` has the engine."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ropewalk.serve.generation.request import Answer, Request, SessionState, State

if TYPE_CHECKING:
    from ropewalk.extension.extension import Extension  # importing it takes a second
    from ropewalk.methods.facts import Facts


class Carried(Protocol):
    """One extension, as the engine serves it."""

    @property
    def extension(self) -> Extension:
        """Its methods."""
        ...

    @property
    def facts(self) -> Facts:
        """The facts of the model's first layer."""
        ...

    @property
    def carried(self) -> int | None:
        """Tokens of the longest text; None where there is no limit."""
        ...


class Answering(Protocol):
    """An engine that answers questions while the event loop goes on."""

    @property
    def name(self) -> str:
        """The model's name."""
        ...

    @property
    def tokenizer(self) -> Any:
        """The tokenizer of transformers."""
        ...

    @property
    def extensions(self) -> Mapping[str, Carried]:
        """By name, that of the start first."""
        ...

    @property
    def capacity(self) -> int:
        """The answers that may be asked for at once."""
        ...

    def ask(self, question: Request) -> Answer:
        """Begin to answer; refused are wrong numbers, a full queue, and a session that is gone or busy."""
        ...

    def state(self) -> State:
        """What the engine is doing now."""
        ...

    def session_state(self, session: str) -> SessionState | None:
        """A session after its last whole turn; None where there is none. Refused where it was evicted."""
        ...

    def drop_session(self, session: str) -> Awaitable[bool]:
        """Forget a session; whether there was one."""
        ...

    def losses(self, extension: str, ids: Sequence[int]) -> Awaitable[list[float | None]]:
        """The loss of every token; the first has none."""
        ...

    def attention(self, extension: str, ids: Sequence[int], layer: int, head: int) -> Awaitable[list[list[float]]]:
        """What one head of one layer attends to: row i has i + 1 numbers."""
        ...

    async def close(self, *, drain: float) -> None:
        """Accept no more questions, and finish the running ones within so many seconds."""
        ...
