"""Tasks that others bring: as a file, or as an entry point of an installed package."""

from __future__ import annotations

import inspect
import re
import sys
from contextlib import suppress
from functools import cache
from importlib.metadata import EntryPoint
from types import ModuleType
from typing import Any

from ropewalk.errors import InvalidValue, Unreadable
from ropewalk.extension.outside_code import (
    FILE_MODULE,
    PLAIN_NAME,
    SourceFile,
    classes_of,
    load_offer,
    mark_of,
    offers_of,
    package_of,
    require_different,
    require_name_of,
    send_with,
)
from ropewalk.measure.tasks.task import Task
from ropewalk.methods.spec import Json

# What a class must have to be a task, and the hash of the file that it comes from.


def require_task(candidate: Any, where: str) -> type[Task]:
    """The class, if it is a task that can be measured."""
    title = getattr(candidate, "__name__", repr(candidate))
    if not (isinstance(candidate, type) and issubclass(candidate, Task)):
        sentence, remedy = f"{title} in {where} is no task", "extend ropewalk.measure.tasks.task.Task"
        raise InvalidValue.because("tasks", sentence, remedy=remedy)
    if "__dataclass_params__" not in vars(candidate):
        remedy = "write @dataclass(frozen=True, kw_only=True) above it"
        raise InvalidValue.because("tasks", f"the class {title} in {where} is no record", remedy=remedy)
    if not re.fullmatch(PLAIN_NAME, str(getattr(candidate, "name", ""))):
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


# Tasks of installed packages, which name them by entry points of the group `ropewalk.tasks`.


GROUP = "ropewalk.tasks"


def installed_tasks() -> dict[str, list[EntryPoint]]:
    """The entry points by the name of their task. None is imported yet."""
    return offers_of(GROUP)


def task_of(offers: list[EntryPoint]) -> type[Task]:
    """The task of the only package that offers one by this name."""
    task = require_task(load_offer(offers, "task", "tasks"), package_of(offers[0]))
    require_name_of(offers[0], task, "task", "tasks")
    return task


# Tasks in a file of the user's: `--tasks ./my_task.py`.
#
# The file runs as a module, and its tasks are the classes that extend `Task` (those whose names begin with an
# underscore aside). A task that is sent to another process takes the text of its file along, so that the nodes of a
# cluster need not have it.


def tasks_in(path: str) -> tuple[type[Task], ...]:
    """The tasks of a file.

    tasks_in("my_task.py")    # (<class 'ropewalk_file_5f1c....Colours'>,)
    """
    source = SourceFile.read(path, "tasks", "a file with a task")
    return tuple(_tasks_of(source.module("tasks"), source))


def _tasks_of(module: ModuleType, source: SourceFile) -> list[type[Task]]:
    tasks = [require_task(value, source.path) for value in classes_of(module) if issubclass(value, Task)]
    if not tasks:
        remedy = "write a class that extends ropewalk.measure.tasks.task.Task; CONTRIBUTING.md has an example"
        raise Unreadable.because("tasks", f"{source.path} has no task", remedy=remedy)
    require_different(tasks, "task", "tasks", source.path)
    for task in tasks:
        send_with(task, source, _receive)
    return tasks


def _receive(path: str, text: bytes, name: str, values: Json) -> Task:
    """A task in the process that it was sent to."""
    source = SourceFile(path, text)
    kind = next(task for task in _tasks_of(source.module("tasks"), source) if task.__name__ == name)
    return kind(**values)
