"""All errors of Ropewalk, as one tree.

    RopewalkError                a ValueError, so that plain callers catch it too
    ├── InvalidValue             a field breaks its rule
    ├── UnknownName              a method, preset, key or slot that does not exist
    ├── Unreadable               a text or JSON that cannot be parsed
    ├── Conflict                 two terms fill the same slot
    ├── DoesNotFit               a valid extension, but not for this model
    └── NotInstalled             a missing package, with the command that installs it

Every message has the field, its rule, the value and a remedy. Most read *field must be rule, got value; known: values;
remedy*. A name that does not exist reads *yarn has no parameter 'faktor'; did you mean 'factor'? It has: factor*. Where
neither is good English, `because` takes the whole sentence.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from importlib.metadata import distributions
from typing import Any, TypeVar

EXTRAS = {
    "accelerate": "train",
    "peft": "train",
    "datasets": "train",
    "tensorboard": "train",
    "optuna": "search",
    "ray": "cluster",
    "lm_eval": "eval",
    "gguf": "llama-cpp",
    "matplotlib": "pictures",
    "fastapi": "serve",
    "uvicorn": "serve",
    "prometheus_client": "serve",
}

LONGEST_VALUE = 400  # characters of a value in a message
MEMORY = ("out of memory", "can't allocate memory", "not enough memory")  # messages of torch's allocators


Error = TypeVar("Error", bound="RopewalkError")


class RopewalkError(ValueError):
    """The root: catch it to catch every error that this library raises on purpose."""

    def __init__(self, field: str, rule: str, got: object, *, known: Iterable[str] = (), remedy: str = "") -> None:
        super().__init__(_join(f"{field} must be {rule.rstrip(',')}, got {short_repr(got)}", known, remedy))
        self.field = field

    @classmethod
    def because(cls: type[Error], field: str, sentence: str, *, known: Iterable[str] = (), remedy: str = "") -> Error:
        """An error in a whole sentence, for rules that "must be" would bend."""
        return _restore(cls, field, _join(sentence, known, remedy))

    def __reduce__(self) -> tuple[Any, ...]:
        """For another process: the message alone, since the value may be anything."""
        return _restore, (type(self), self.field, str(self))


class InvalidValue(RopewalkError):
    """A field breaks its rule."""


class UnknownName(RopewalkError):
    """A method, preset, key or slot that does not exist."""

    def __init__(
        self, kind: str, name: object, *, known: Iterable[str] | None = None, owner: str = "", remedy: str = ""
    ) -> None:
        names = list(known or ())
        sentence = f"{owner} has no {kind} {short_repr(name)}" if owner else f"there is no {kind} {short_repr(name)}"
        close = get_close_matches(str(name), names, n=1)
        sentence += f"; did you mean {close[0]!r}?" if close else "."
        if names:
            sentence += f" {'It has' if owner else 'Known'}: {', '.join(names)}"
        elif known is not None:
            sentence += " It has none"
        ValueError.__init__(self, f"{sentence}; {remedy}" if remedy else sentence)
        self.field = kind


class Unreadable(RopewalkError):
    """A text or JSON that cannot be parsed."""


class Conflict(RopewalkError):
    """Two terms fill the same slot."""


class DoesNotFit(RopewalkError):
    """A valid extension, but not for this model."""


class NotInstalled(RopewalkError, ImportError):
    """A package that is missing, with the command that installs it."""


def short_repr(got: object) -> str:
    """A value as Python writes it, cut where it is too long; its type where it cannot be written."""
    try:
        written = repr(got)
    except (ValueError, RecursionError):  # a number of thousands of digits, lists in lists
        return f"a {type(got).__name__} too large to show"
    return written if len(written) <= LONGEST_VALUE else f"{written[:LONGEST_VALUE]} ..."


def _join(sentence: str, known: Iterable[str], remedy: str) -> str:
    names = list(known)
    return "; ".join([sentence, *([f"known: {', '.join(names)}"] if names else []), *([remedy] if remedy else [])])


def _restore(kind: type[Error], field: str, message: str) -> Error:
    error = kind.__new__(kind)
    error.args, error.field = (message,), field
    return error


@contextmanager
def name_errors(what: str) -> Iterator[None]:
    """Errors raised in the block begin with this name: a task, a file, one item of several."""
    try:
        yield
    except RopewalkError as reason:
        raise _restore(type(reason), reason.field, f"{what}: {reason}") from reason


def not_installed(missing: ModuleNotFoundError) -> NotInstalled:
    """The error that names the extra with the package, or the package itself."""
    name = (missing.name or str(missing)).partition(".")[0]
    remedy = f"pip install {name}"
    if name in EXTRAS and _from_index():
        remedy = f"pip install 'ropewalk[{EXTRAS[name]}]'"
    elif name in EXTRAS:
        remedy = f"in a checkout of Ropewalk, pip install '.[{EXTRAS[name]}]' -c constraints.txt"
    return NotInstalled.because(name, f"{name} is not installed", remedy=remedy)


def _from_index() -> bool:
    """Whether an installer took Ropewalk from an index: it notes other places (PEP 610); setuptools is none."""
    names = [{path.name for path in wheel.files or ()} for wheel in distributions(name="ropewalk")]
    by_installer = [files for files in names if "INSTALLER" in files]
    return bool(by_installer) and not any("direct_url.json" in files for files in by_installer)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out; on a CPU torch raises a plain RuntimeError for that."""
    from_torch = isinstance(error, RuntimeError) and any(words in str(error) for words in MEMORY)
    return from_torch or isinstance(error, MemoryError)
