"""Which revision of a model on the hub is loaded: a branch, a tag or a commit, the same for all of its files."""

from __future__ import annotations

from contextlib import AbstractContextManager
from contextvars import ContextVar
from pathlib import Path

from ropewalk.errors import InvalidValue
from ropewalk.scoped import scoped

_REVISION: ContextVar[str] = ContextVar("revision", default="")


def at_revision(revision: str) -> AbstractContextManager[str]:
    """The default inside a block; empty for the newest."""
    return scoped(_REVISION, revision)


def wanted_revision() -> str:
    """The revision that is loaded by default; empty for the newest."""
    return _REVISION.get()


def revision_of(model: str | Path) -> dict[str, str]:
    """What transformers is told of it; refused for a folder, which has no revisions."""
    revision = wanted_revision()
    if revision and Path(model).is_dir():
        sentence = f"a revision ({revision}) is for a model on the hub, and {model} is a folder"
        raise InvalidValue.because("--revision", sentence, remedy="leave --revision out")
    return {"revision": revision} if revision else {}
