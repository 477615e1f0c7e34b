"""Which tasks a line names: `context,needle:samples=8,depths=5,ruler:kind=vt`."""

from __future__ import annotations

from collections.abc import Sequence

from ropewalk.errors import Conflict, UnknownName
from ropewalk.evaluation.tasks import ALL, Context, Task
from ropewalk.notation import Term, listed

NAMES = {task.name: task for task in ALL}


def tasks_named(line: str, samples: int) -> tuple[Task, ...]:
    """The tasks of a line; `samples` is for those without a number of their own."""
    tasks = [task for term in listed(line, "tasks") for task in _task(term, samples)]
    return checked(tasks, samples)


def checked(tasks: Sequence[Task], samples: int) -> tuple[Task, ...]:
    """The tasks, with `context` added, which every verdict needs; no two may have one name."""
    titles = [task.title for task in tasks]
    for title in titles:
        if titles.count(title) > 1:
            raise Conflict.because("tasks", f"the task {title} is named twice", remedy="name every task once")
    return (*([] if Context.name in titles else [Context(samples=samples)]), *tasks)


def _task(term: Term, samples: int) -> tuple[Task, ...]:
    if term.name not in NAMES:
        raise UnknownName("task", term.name, known=NAMES)
    return NAMES[term.name].named({"samples": samples, **term.values})
