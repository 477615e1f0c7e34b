"""Tasks of installed packages, which name them by entry points of the group `ropewalk.tasks`."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

from ropewalk.errors import Conflict, InvalidValue, Unreadable
from ropewalk.files import why
from ropewalk.measure.tasks.outside.complete import require_task
from ropewalk.measure.tasks.signature import Task

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
