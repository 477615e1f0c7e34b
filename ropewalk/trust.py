"""Whether code that comes with a model may run. The caller decides; nobody is asked on a terminal."""

from __future__ import annotations

from contextlib import AbstractContextManager
from contextvars import ContextVar

from ropewalk.scoped import scoped

_TRUSTED: ContextVar[bool] = ContextVar("trusted", default=False)


def trusting(trust: bool) -> AbstractContextManager[bool]:
    """The default inside a block: whether code that comes with a model runs."""
    return scoped(_TRUSTED, trust)


def trusted() -> bool:
    """Whether such code runs by default."""
    return _TRUSTED.get()
