"""Running a comparison: what is not in the store yet, cell by cell."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import NamedTuple

from ropewalk.evaluation.cells import Cell, cells
from ropewalk.evaluation.scores import Estimate
from ropewalk.evaluation.store import Store
from ropewalk.evaluation.subject import Subject
from ropewalk.evaluation.tasks.signature import Task
from ropewalk.extension import Extension
from ropewalk.hf.extending import extended
from ropewalk.spec import Json

Progress = Callable[[Cell], None]


class Row(NamedTuple):
    """One extension, one task, one length: its samples condensed."""

    extension: Extension
    task: Task
    length: int
    numbers: Mapping[str, Estimate]
    samples: tuple[Json, ...]  # what was measured, one by one
    seconds: float  # of measuring, in sum over the samples


def run(
    subject: Subject,
    extensions: Sequence[Extension],
    tasks: Sequence[Task],
    lengths: Sequence[int],
    store: Store,
    *,
    progress: Progress = lambda cell: None,
) -> list[Row]:
    """Measure what is missing, and condense everything."""
    for task in tasks:
        task.require(subject, task.at(lengths, subject.facts.trained_len))
    every = list(cells(extensions, tasks, lengths, subject.facts.trained_len))
    done = store.keys()
    keys = {cell: cell.key(subject.marks) for cell in every}  # of the bare model: before it is extended
    for extension in extensions:
        own = [cell for cell in every if cell.extension == extension]
        missing = [cell for cell in own if keys[cell] not in done]
        for cell in own[len(missing) :]:
            progress(cell)
        with extended(subject.model, extension) if missing else nullcontext():
            for cell in missing:
                store.put(keys[cell], result_of(subject, cell))
                progress(cell)
    return condensed(keys, store)


def result_of(subject: Subject, cell: Cell) -> Json:
    """A cell's result, and what it took."""
    began = time.perf_counter()
    result = cell.task.measure(subject, cell.length, cell.sample)
    return {"result": result, "seconds": time.perf_counter() - began}


def condensed(keys: Mapping[Cell, str], store: Store) -> list[Row]:
    """The table: what the store has of these cells."""
    groups: dict[tuple[Extension, Task, int], list[Json]] = {}
    for cell, key in keys.items():
        found = store.get(key)
        if found is not None:
            groups.setdefault((cell.extension, cell.task, cell.length), []).append(found)
    return [_row(*which, found) for which, found in groups.items()]


def _row(extension: Extension, task: Task, length: int, found: Sequence[Json]) -> Row:
    samples = tuple(each["result"] for each in found)
    seconds = sum(each["seconds"] for each in found)
    return Row(extension, task, length, task.condense(samples), samples, seconds)
