"""Which tasks a line names: `context,needle:samples=8,depths=5,ruler:kind=vt,./my_task.py`.

A name is that of a task of the package or of an installed one; a file has all its tasks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import cast

from ropewalk.errors import Conflict, DoesNotFit, UnknownName
from ropewalk.extension.notation import FILE, Term, read_list
from ropewalk.extension.outside_code import package_of
from ropewalk.measure.tasks import ALL, Context, QuantisedCache, Task
from ropewalk.measure.tasks.outside import installed_tasks, task_of, tasks_in
from ropewalk.methods.spec import Json, build

NAMES = {task.name: task for task in ALL}
RENAME = "give it another name"


def tasks_named(line: str, samples: int) -> tuple[Task, ...]:
    """The tasks of a line; `samples` is for those without a number of their own."""
    tasks = [task for term in read_list(line, "tasks") for task in _tasks(term, samples)]
    return check_tasks(tasks, samples)


def check_tasks(tasks: Sequence[Task], samples: int) -> tuple[Task, ...]:
    """The tasks, with `context` added, which every verdict needs; no two may have one name."""
    titles = Counter(task.title for task in tasks)
    for title, times in titles.items():
        if times > 1:
            raise Conflict.because("tasks", f"the task {title} is named twice", remedy="name every task once")
    caches = [task for task in tasks if isinstance(task, QuantisedCache)]
    like = caches[0].of_texts if caches else {"samples": samples}
    context = next((task for task in tasks if isinstance(task, Context) and task.title == Context.name), None)
    context, before = context or Context(**like), [] if context else [Context(**like)]
    for task in caches:
        if task.of_texts != context.of_texts:
            sentence = f"{task.title} reads other texts than context: {task.of_texts}, not {context.of_texts}"
            raise Conflict.because("tasks", sentence, remedy="give both the same samples, last and questions")
    return (*before, *tasks)


def tasks_stored(stored: Sequence[Json]) -> tuple[Task, ...]:
    """Tasks from their JSON, which has their versions: another version of a task gives other numbers."""
    tasks = []
    for values in stored:
        kind = NAMES.get(values.get("name", ""))
        if kind is None:
            raise UnknownName("task", str(values.get("name")), known=[*NAMES])
        if values.get("version") != kind.version:
            sentence = f"the task {kind.name} was of version {values.get('version')}, and here it is of {kind.version}"
            raise DoesNotFit.because("tasks", sentence, remedy="measure it with the version of Ropewalk that it names")
        tasks.append(build(kind, {name: value for name, value in values.items() if name not in ("name", "version")}))
    return tuple(cast(list[Task], tasks))


def _tasks(term: Term, samples: int) -> list[Task]:
    kinds = _tasks_in_file(term.name) if term.name.endswith(FILE) else (_task_by_name(term.name),)
    return [task for kind in kinds for task in kind.named({"samples": samples, **term.values})]


def _tasks_in_file(path: str) -> tuple[type[Task], ...]:
    """The tasks of a file, none of which has the name of one of the package's."""
    kinds = tasks_in(path)
    for kind in kinds:
        if kind.name in NAMES:
            sentence = f"the task {kind.name} in {path} has the name of a task of Ropewalk"
            raise Conflict.because("tasks", sentence, remedy=RENAME)
    return kinds


def _task_by_name(name: str) -> type[Task]:
    offers = installed_tasks()
    if name in NAMES and name in offers:
        sentence = f"the task {name} of {package_of(offers[name][0])} has the name of a task of Ropewalk"
        raise Conflict.because("tasks", sentence, remedy=RENAME)
    if name in NAMES:
        return NAMES[name]
    if name in offers:
        return task_of(offers[name])
    remedy = "a file of tasks is named by its path: ./my_task.py"
    raise UnknownName("task", name, known=[*NAMES, *offers], remedy=remedy)
