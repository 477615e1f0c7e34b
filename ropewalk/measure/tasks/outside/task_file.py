"""Tasks in a file of the user's: `--tasks ./my_task.py`.

The file runs as a module, and its tasks are the classes that extend `Task` (those whose names begin with an underscore
aside). The module's name has a hash of the file: after a change it is another module, and its results are others. A
task that is sent to another process takes the text of its file along, so that the nodes of a cluster need not have it.
"""

from __future__ import annotations

import copyreg
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from ropewalk.errors import Conflict, RopewalkError, Unreadable
from ropewalk.files import read_bytes, why
from ropewalk.measure.tasks.outside.complete import FILE_MODULE, mark_of, require_task
from ropewalk.measure.tasks.signature import Task
from ropewalk.methods.record import parameters
from ropewalk.methods.spec import Json


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
        remedy = "write a class that extends ropewalk.measure.tasks.signature.Task; CONTRIBUTING.md has an example"
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
