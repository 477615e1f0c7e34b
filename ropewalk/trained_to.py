"""The length that models were trained to, where somebody corrects what their configs say."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_STATED: ContextVar[int | None] = ContextVar("trained_to", default=None)


@contextmanager
def trained_to(length: int | None) -> Iterator[None]:
    """Every model was trained to this length within a block, whatever its config states; nothing: as that states."""
    before = _STATED.set(length)
    try:
        yield
    finally:
        _STATED.reset(before)


def stated() -> int | None:
    """The length, where one is stated."""
    return _STATED.get()
