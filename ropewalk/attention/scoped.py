"""A context variable that has a value for the length of a block."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

Value = TypeVar("Value")


@contextmanager
def scoped(variable: ContextVar[Value], value: Value) -> Iterator[Value]:
    """Set the variable inside the block; afterwards it has the value from before."""
    token = variable.set(value)
    try:
        yield value
    finally:
        variable.reset(token)
