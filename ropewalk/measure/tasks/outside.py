"""Tasks that others bring: as a file, or as an entry point of an installed package."""

from __future__ import annotations

import copyreg
import inspect
import re
import sys
import traceback
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from ropewalk.errors import Conflict, InvalidValue, RopewalkError, Unreadable
from ropewalk.files import read_bytes, why
from ropewalk.measure.tasks.task import Task
from ropewalk.methods.record import parameters
from ropewalk.methods.spec import Json

# What a class must have to be a task, and the hash of the file that it comes from.


FILE_MODULE = "ropewalk_task_"  # begins the name of a module that was read from a file of the user's
NAME = r"[A-Za-z_]\w*"


def require_task(candidate: Any, where: str) -> type[Task]:
    """The class, if it is a task that can be measured."""
    title = getattr(candidate, "__name__", repr(candidate))
    if not (isinstance(candidate, type) and issubclass(candidate, Task)):
        sentence, remedy = f"{title} in {where} is no task", "extend ropewalk.measure.tasks.task.Task"
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


# Tasks of installed packages, which name them by entry points of the group `ropewalk.tasks`.


GROUP = "ropewalk.tasks"


def installed_tasks() -> dict[str, list[EntryPoint]]:
    """The entry points by the name of their task. None is imported yet.

    installed()    # {"colours": [EntryPoint(name="colours", ...)]}
    """
    offers: dict[str, list[EntryPoint]] = {}
    for point in entry_points(group=GROUP):
        if point not in (known := offers.setdefault(point.name, [])):  # a folder can stand on the path twice
            known.append(point)
    return offers


def task_of(offers: list[EntryPoint]) -> type[Task]:
    """The task of the only package that offers one by this name."""
    point, *others = offers
    if others:
        packages = " and ".join(map(package_of, offers))
        sentence = f"the task {point.name} is offered by several packages: {packages}"
        raise Conflict.because("tasks", sentence, remedy="uninstall all but one")
    where = package_of(point)
    try:
        loaded = point.load()
    except Exception as wrong:
        sentence = f"the task {point.name} of {where} cannot be imported: {type(wrong).__name__}: {why(wrong)}"
        raise Unreadable.because("tasks", sentence, remedy="correct or uninstall the package") from wrong
    task = require_task(loaded, where)
    if task.name != point.name:
        sentence = f"the entry point {point.name} of {where} leads to a task of the name {task.name}"
        raise InvalidValue.because("tasks", sentence, remedy="give both one name")
    return task


def package_of(point: EntryPoint) -> str:
    """The package of an entry point, or where it leads."""
    return point.dist.name if point.dist else point.value


# Tasks in a file of the user's: `--tasks ./my_task.py`.
#
# The file runs as a module, and its tasks are the classes that extend `Task` (those whose names begin with an
# underscore aside). The module's name has a hash of the file: after a change it is another module, and its results are
# others. A task that is sent to another process takes the text of its file along, so that the nodes of a cluster need
# not have it.


def tasks_in(path: str) -> tuple[type[Task], ...]:
    """The tasks of a file.

    tasks_in("my_task.py")    # (<class 'ropewalk_task_5f1c....Colours'>,)
    """
    text = read_bytes(Path(path), "tasks", "a file with a task")
    return tuple(_tasks_of(_module(path, text), path, text))


def _tasks_of(module: ModuleType, path: str, text: bytes) -> list[type[Task]]:
    defined = [value for value in vars(module).values() if getattr(value, "__module__", "") == module.__name__]
    classes = dict.fromkeys(value for value in defined if isinstance(value, type))  # one can have two names
    public = [value for value in classes if not value.__name__.startswith("_")]
    tasks = [require_task(value, path) for value in public if issubclass(value, Task)]
    if not tasks:
        remedy = "write a class that extends ropewalk.measure.tasks.task.Task; CONTRIBUTING.md has an example"
        raise Unreadable.because("tasks", f"{path} has no task", remedy=remedy)
    names = [task.name for task in tasks]
    for task in tasks:
        if names.count(task.name) > 1:
            sentence = f"{path} has {names.count(task.name)} tasks of the name {task.name}"
            raise Conflict.because("tasks", sentence, remedy="give each a name of its own")
        _send_with(task, path, text)
    return tasks


def _module(path: str, text: bytes) -> ModuleType:
    """The file as a module, run once in each process."""
    name = FILE_MODULE + mark_of(text)
    if name in sys.modules:
        return sys.modules[name]
    module = ModuleType(name)
    module.__file__ = path
    sys.modules[name] = module  # records look up their module
    try:
        exec(compile(text, path, "exec"), module.__dict__)
    except RopewalkError:
        del sys.modules[name]
        raise
    except Exception as wrong:
        del sys.modules[name]
        sentence = f"{path} cannot be run: {_place(wrong, path)}{type(wrong).__name__}: {why(wrong)}"
        raise Unreadable.because("tasks", sentence, remedy="correct it") from wrong
    return module


def _place(wrong: Exception, path: str) -> str:
    """The line of the file where it went wrong."""
    lines = [line for frame, line in traceback.walk_tb(wrong.__traceback__) if frame.f_code.co_filename == path]
    line = wrong.lineno if isinstance(wrong, SyntaxError) else lines[-1] if lines else None
    return f"line {line}: " if line else ""


def _send_with(kind: type[Task], path: str, text: bytes) -> None:
    """Let tasks of this class travel with their file."""

    def reduced(task: Task) -> tuple[Any, ...]:
        values = {parameter.name: getattr(task, parameter.name) for parameter in parameters(type(task))}
        return _receive, (path, text, kind.__name__, values)

    copyreg.pickle(kind, reduced)


def _receive(path: str, text: bytes, name: str, values: Json) -> Task:
    """A task in the process that it was sent to."""
    kind = next(task for task in _tasks_of(_module(path, text), path, text) if task.__name__ == name)
    return kind(**values)
