"""Everything Ropewalk refuses, as one tree.

    RopewalkError                a ValueError, so that plain callers catch it too
    ├── InvalidValue             a field breaks its rule
    ├── UnknownName              a method, preset, key or slot that does not exist
    ├── Unreadable               a text or JSON that cannot be parsed
    ├── Conflict                 two terms fill the same slot
    ├── DoesNotFit               a sound extension, but not for this model
    └── NotInstalled             a package that is missing, with what brings it

Every message reads *field must be rule, got value; known values; remedy*.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

EXTRAS = {
    "accelerate": "train",
    "peft": "train",
    "datasets": "train",
    "tensorboard": "train",
    "optuna": "search",
    "ray": "cluster",
    "lm_eval": "eval",
    "fastapi": "serve",
    "uvicorn": "serve",
    "triton": "triton",
}

LONGEST = 400  # characters of a value that is refused
MEMORY = ("out of memory", "can't allocate memory", "not enough memory")  # what torch's allocators say


class RopewalkError(ValueError):
    """The root: catch it to catch everything this library refuses."""

    def __init__(self, field: str, rule: str, got: object, *, known: Iterable[str] = (), remedy: str = "") -> None:
        parts = [f"{field} must be {rule}, got {_shown(got)}"]
        names = list(known)
        if names:
            parts.append(f"known: {', '.join(names)}")
        if remedy:
            parts.append(remedy)
        super().__init__("; ".join(parts))
        self.field = field

    def __reduce__(self) -> tuple[Any, ...]:
        """For another process: the message as it stands, for what was got may be anything."""
        return _said, (type(self), self.field, str(self))


class InvalidValue(RopewalkError):
    """A field breaks its rule."""


class UnknownName(RopewalkError):
    """A method, preset, key or slot that does not exist."""


class Unreadable(RopewalkError):
    """A text or JSON that cannot be parsed."""


class Conflict(RopewalkError):
    """Two terms fill the same slot."""


class DoesNotFit(RopewalkError):
    """A sound extension, but not for this model."""


class NotInstalled(RopewalkError, ImportError):
    """A package that is missing, with what brings it."""


def _shown(got: object) -> str:
    """A value as Python writes it, cut where it is endless; its type where it cannot be written."""
    try:
        written = repr(got)
    except (ValueError, RecursionError):  # a number of thousands of digits, lists in lists
        return f"a {type(got).__name__} too large to show"
    return written if len(written) <= LONGEST else f"{written[:LONGEST]} ..."


def _said(kind: type[RopewalkError], field: str, message: str) -> RopewalkError:
    error = kind.__new__(kind)
    error.args, error.field = (message,), field
    return error


@contextmanager
def about(what: str) -> Iterator[None]:
    """What is refused within a block is said of this: a task, a file, one of several things that were asked for."""
    try:
        yield
    except RopewalkError as reason:
        raise _said(type(reason), reason.field, f"{what}: {reason}") from reason


def not_installed(missing: ModuleNotFoundError) -> NotInstalled:
    """The refusal that names the extra which brings the package, or the package itself."""
    name = (missing.name or str(missing)).partition(".")[0]
    wanted = f"'ropewalk[{EXTRAS[name]}]'" if name in EXTRAS else name
    return NotInstalled(name, "installed", None, remedy=f"pip install {wanted}")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether it is for want of memory, which on a processor torch says by a plain RuntimeError."""
    says = isinstance(error, RuntimeError) and any(words in str(error) for words in MEMORY)
    return says or isinstance(error, MemoryError)
