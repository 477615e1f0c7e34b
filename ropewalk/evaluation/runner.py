"""Running a comparison: what is not in the store yet, cell by cell."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from itertools import groupby
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
Finished = tuple[Cell, Json]
Measuring = Callable[[Subject, Sequence[Cell]], Generator[Finished, None, None]]


class Row(NamedTuple):
    """One extension, one task, one length: its samples condensed."""

    extension: Extension
    task: Task
    length: int
    numbers: Mapping[str, Estimate]
    samples: tuple[Json, ...]  # what was measured, one by one
    seconds: float  # of measuring, in sum over the samples


def here(subject: Subject, missing: Sequence[Cell]) -> Generator[Finished, None, None]:
    """Measure in this process, one extension after the other."""
    for extension, own in groupby(missing, key=lambda cell: cell.extension):
        with extended(subject.model, extension):
            for cell in own:
                yield cell, result_of(subject, cell)


def run(
    subject: Subject,
    extensions: Sequence[Extension],
    tasks: Sequence[Task],
    lengths: Sequence[int],
    store: Store,
    *,
    measuring: Measuring = here,
    progress: Progress = lambda cell: None,
) -> list[Row]:
    """Measure what is missing, keep each cell as it comes, and condense everything."""
    for task in tasks:
        task.require(subject, task.at(lengths, subject.facts.trained_len))
    every = list(cells(extensions, tasks, lengths, subject.facts.trained_len))
    done = store.keys()
    keys = {cell: cell.key(subject.marks) for cell in every}  # of the bare model: before it is extended
    for cell in every:
        if keys[cell] in done:
            progress(cell)
    with closing(measuring(subject, [cell for cell in every if keys[cell] not in done])) as finished:
        for cell, result in finished:
            store.put(keys[cell], result)
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
