"""Running a comparison: what is not in the store yet, cell by cell."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from itertools import groupby
from typing import NamedTuple

import torch

from ropewalk.errors import about, is_out_of_memory
from ropewalk.evaluation.compare.cells import Cell, cells
from ropewalk.evaluation.compare.store import Store
from ropewalk.evaluation.material.subject import Subject
from ropewalk.evaluation.metrics.intervals import Estimate
from ropewalk.evaluation.tasks.signature import Task
from ropewalk.extension import Extension
from ropewalk.spec import Json

OUT_OF_MEMORY = "out of memory"
FAILED = "failed"  # of a result that has no numbers: why

Group = tuple[Extension, Task, int]
Progress = Callable[[Cell], None]
Finished = tuple[Cell, Json]
Measuring = Callable[[Subject, Sequence[Cell]], Generator[Finished, None, None]]


class ResultRow(NamedTuple):
    """One extension, one task, one length: its samples condensed."""

    extension: Extension
    task: Task
    length: int
    numbers: Mapping[str, Estimate]
    samples: tuple[Json, ...]  # what was measured, one by one
    seconds: float  # in sum over the samples: of the processor on a CPU, else by the clock
    failed: str = ""  # why a sample is missing; a row with one has no numbers


def here(subject: Subject, missing: Iterable[Cell]) -> Generator[Finished, None, None]:
    """Measure in this process, one extension after the other."""
    for extension, own in groupby(missing, key=lambda cell: cell.extension):
        with subject.under(extension):
            _ = subject.warm
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
) -> list[ResultRow]:
    """Measure what is missing, keep each cell as it comes, and condense everything."""
    for task in tasks:
        with about(task.title):
            task.require(subject, task.at(lengths, subject.facts.trained_len))
    every = list(cells(extensions, tasks, lengths, subject.facts.trained_len))
    done = store.keys()
    marks = {sample: subject.marks_at(sample) for sample in {cell.sample for cell in every}}
    keys = {cell: cell.key(marks[cell.sample]) for cell in every}  # of the bare model: before it is extended
    for cell in every:
        if keys[cell] in done:
            progress(cell)
    missing = dict.fromkeys(cell for cell in every if keys[cell] not in done)  # two lines may name one extension
    with closing(measuring(subject, list(missing))) as finished:
        for cell, result in finished:
            if FAILED in result:
                store.fail(keys[cell], result[FAILED])
            else:
                store.put(keys[cell], result)
            progress(cell)
    return condensed(keys, store)


def result_of(subject: Subject, cell: Cell) -> Json:
    """A cell's result, and what it took; or that memory did not suffice, which is no reason to stop.

    On a CPU a text takes as long as the processor works for it: cells are measured beside each other and beside other
    work, and a clock on the wall would compare their neighbours.
    """
    clock = time.process_time if subject.model.device.type == "cpu" else time.perf_counter
    began = clock()
    try:
        with about(cell.task.title):
            result = cell.task.measure(subject, cell.length, cell.sample)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
    else:
        return {"result": result, "seconds": clock() - began}
    gc.collect()  # what the failure still held
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return {FAILED: OUT_OF_MEMORY}


def condensed(keys: Mapping[Cell, str], store: Store) -> list[ResultRow]:
    """The table: what the store has of these cells."""
    groups: dict[Group, list[Json]] = {}
    failed: dict[Group, str] = {}
    for cell, key in keys.items():
        group, found = (cell.extension, cell.task, cell.length), store.get(key)
        groups.setdefault(group, []).extend([found] if found is not None else [])
        why = store.failure(key) if found is None else None
        failed |= {group: why} if why else {}
    return [
        ResultRow(*group, {}, (), 0.0, failed[group]) if group in failed else _row(*group, found)
        for group, found in groups.items()
        if found or group in failed
    ]


def _row(extension: Extension, task: Task, length: int, found: Sequence[Json]) -> ResultRow:
    samples = tuple(each["result"] for each in found)
    seconds = sum(each["seconds"] for each in found)
    return ResultRow(extension, task, length, task.condense(samples), samples, seconds)
