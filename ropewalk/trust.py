"""Whether code that comes with a model may run. It runs where somebody said so, and nobody is asked on a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_TRUSTED: ContextVar[bool] = ContextVar("trusted", default=False)


@contextmanager
def trusting(said: bool) -> Iterator[None]:
    """Code that comes with a model runs, or not, where nothing else is said within a block."""
    before = _TRUSTED.set(said)
    try:
        yield
    finally:
        _TRUSTED.reset(before)


def trusted() -> bool:
    """Whether it runs where nothing else is said."""
    return _TRUSTED.get()
