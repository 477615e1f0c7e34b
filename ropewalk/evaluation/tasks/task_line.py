"""Which tasks a line names: `context,needle:samples=8,depths=5,ruler:kind=vt`."""

from __future__ import annotations

from collections.abc import Sequence

from ropewalk.errors import Conflict, UnknownName
from ropewalk.evaluation.tasks import ALL, Context, Task
from ropewalk.notation import Term, listed

NAMES = {task.name: task for task in ALL}


def tasks_named(line: str, samples: int) -> tuple[Task, ...]:
    """The tasks of a line, with so many samples each where it does not say how many."""
    found = [task for term in listed(line, "tasks") for task in _task(term, samples)]
    return checked(found, samples)


def checked(tasks: Sequence[Task], samples: int) -> tuple[Task, ...]:
    """With the loss under growing context among them, which every verdict is made from; no two under one name."""
    titles = [task.title for task in tasks]
    for title in titles:
        if titles.count(title) > 1:
            raise Conflict("tasks", "named once each", title)
    return (*([] if Context.name in titles else [Context(samples=samples)]), *tasks)


def _task(term: Term, samples: int) -> tuple[Task, ...]:
    if term.name not in NAMES:
        raise UnknownName("task", term.name, known=NAMES)
    return NAMES[term.name].named({"samples": samples, **term.values})
