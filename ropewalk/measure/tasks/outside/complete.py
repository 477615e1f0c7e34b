"""What a class must have to be a task, and the hash of the file that it comes from."""

from __future__ import annotations

import inspect
import re
import sys
from contextlib import suppress
from functools import cache
from hashlib import sha256
from typing import Any

from ropewalk.errors import InvalidValue
from ropewalk.measure.tasks.signature import Task

FILE_MODULE = "ropewalk_task_"  # begins the name of a module that was read from a file of the user's
NAME = r"[A-Za-z_]\w*"


def require_task(candidate: Any, where: str) -> type[Task]:
    """The class, if it is a task that can be measured."""
    title = getattr(candidate, "__name__", repr(candidate))
    if not (isinstance(candidate, type) and issubclass(candidate, Task)):
        sentence, remedy = f"{title} in {where} is no task", "extend ropewalk.measure.tasks.signature.Task"
        raise InvalidValue.because("tasks", sentence, remedy=remedy)
    if "__dataclass_params__" not in vars(candidate):
        remedy = "write @dataclass(frozen=True, kw_only=True) above it"
        raise InvalidValue.because("tasks", f"the class {title} in {where} is no record", remedy=remedy)
    if not re.fullmatch(NAME, str(getattr(candidate, "name", ""))):
        sentence = f"the task {title} in {where} needs a name of letters, digits and underscores"
        raise InvalidValue.because("tasks", sentence, remedy='write name: ClassVar[str] = "..."')
    for missing in _abstract(candidate):
        sentence = f"the task {candidate.name} in {where} has no function {missing}"
        raise InvalidValue.because("tasks", sentence, remedy="CONTRIBUTING.md has an example")
    return candidate


def _abstract(candidate: type[Task]) -> list[str]:
    """The functions that every task writes itself, and this one does not."""
    return [name for name in dir(candidate) if getattr(getattr(candidate, name), "__isabstractmethod__", False)]


def source_mark(task: Task) -> str:
    """A hash of the file that a task comes from; nothing for those of the package, which have a `version` instead.

    It is part of the key of a result, so that a file that was changed is measured anew. What the file imports is not in
    it. A task that was typed into a session has no file: only its `version` tells two of them apart.
    """
    return _mark_of_module(type(task).__module__)


@cache
def _mark_of_module(module: str) -> str:
    if module.startswith(FILE_MODULE):
        return module.removeprefix(FILE_MODULE)
    if module.partition(".")[0] == "ropewalk":
        return ""
    with suppress(OSError, TypeError, KeyError):
        return mark_of(inspect.getsource(sys.modules[module]).encode())
    return ""


def mark_of(text: bytes) -> str:
    """A hash of a file."""
    return sha256(text).hexdigest()[:16]
