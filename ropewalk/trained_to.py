"""A trained length that replaces the one in the config of every model."""

from __future__ import annotations

from contextlib import AbstractContextManager
from contextvars import ContextVar

from ropewalk.scoped import scoped

_STATED: ContextVar[int | None] = ContextVar("trained_to", default=None)


def trained_to(length: int | None) -> AbstractContextManager[int | None]:
    """Inside a block every model counts as trained to this many tokens; None: to what its config states."""
    return scoped(_STATED, length)


def stated() -> int | None:
    """The length that replaces the configs', or None."""
    return _STATED.get()
