"""Cells, and how they are measured."""

from __future__ import annotations

import gc
import hashlib
import json
import math
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import groupby
from typing import NamedTuple

import torch

from ropewalk.errors import is_out_of_memory, name_errors
from ropewalk.extension.extension import Extension
from ropewalk.extension.outside import source_marks
from ropewalk.measure.comparison.store import Store
from ropewalk.measure.material.measured_by import code_marks
from ropewalk.measure.material.subject import Subject
from ropewalk.measure.metrics.intervals import Estimate
from ropewalk.measure.tasks.outside import source_mark
from ropewalk.measure.tasks.task import Task
from ropewalk.methods.spec import Json

# The unit of work: one extension, one length, one task, one sample.


class Cell(NamedTuple):
    """What is measured at once, stored when finished, and never measured again."""

    extension: Extension
    task: Task
    length: int
    sample: int

    def key(self, marks: Mapping[str, str]) -> str:
        """The key in a store: the same for the same numbers, on any machine with the same sources and versions."""
        source, methods = source_mark(self.task), source_marks(self.extension.methods)
        content = {
            "marks": dict(marks),
            "extension": self.extension.to_json(),
            "task": self.task.identity(self.sample),  # with more samples, the first ones keep their keys
            "version": self.task.version,
            "length": self.length,
            "sample": self.sample,
            "measured by": code_marks(),
            **({"source": source} if source else {}),
            **({"methods": methods} if methods else {}),
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def cells(
    extensions: Sequence[Extension],
    tasks: Sequence[Task],
    lengths: Sequence[int],
    trained_len: int,
    *,
    only_longest: bool = False,
) -> Iterator[Cell]:
    """Every cell of a comparison, one extension after the other, so that the model is rarely extended anew.

    `only_longest`: all but the base model, which is the first, read texts of the longest length alone.
    """
    for number, extension in enumerate(extensions):
        read = lengths[-1:] if only_longest and number else lengths
        for task in tasks:
            for length in task.at(read, trained_len):
                yield from (Cell(extension, task, length, sample) for sample in range(task.samples))


# Running a comparison: the cells that are not in the store yet.


OUT_OF_MEMORY = "out of memory"
WORKER_DIED = "its workers died"  # each that tried; often killed for memory by the system, which tells nobody
FAILED = "failed"  # the key of the reason in a result without numbers

Group = tuple[Extension, Task, int]
Finished = tuple[Cell, Json]
Progress = Callable[[Cell, Json], None]  # a cell and its result, empty where the store had it before
Measuring = Callable[[Subject, Sequence[Cell]], Generator[Finished, None, None]]


class ResultRow(NamedTuple):
    """One extension, one task, one length: its samples condensed."""

    extension: Extension
    task: Task
    length: int
    numbers: Mapping[str, Estimate]
    samples: tuple[Json, ...]  # the results, one by one
    seconds: float  # sum over the samples; processor time on a CPU, else wall time
    failed: str = ""  # why a sample is missing; such a row has no numbers
    devices: frozenset[str] = frozenset()  # that took these seconds; a store may have some of another run

    def times(self, base: ResultRow) -> float:
        """Its seconds over those of the base model; NaN unless one kind of device took all of them."""
        return self.seconds / base.seconds if len(self.devices | base.devices) < 2 else math.nan


def measure_here(subject: Subject, missing: Iterable[Cell]) -> Generator[Finished, None, None]:
    """Measure in this process, one extension after the other."""
    for extension, group in groupby(missing, key=lambda cell: cell.extension):
        with subject.under(extension):
            _ = subject.warm
            for cell in group:
                yield cell, result_of(subject, cell)


def run(
    subject: Subject,
    extensions: Sequence[Extension],
    tasks: Sequence[Task],
    lengths: Sequence[int],
    store: Store,
    *,
    measuring: Measuring = measure_here,
    progress: Progress = lambda cell, result: None,
    only_longest: bool = False,
) -> list[ResultRow]:
    """Measure what is missing, store every cell when it is finished, and condense all results."""
    for task in tasks:
        with name_errors(task.title):
            task.require(subject, task.at(lengths, subject.facts.trained_len))
    all_cells = list(cells(extensions, tasks, lengths, subject.facts.trained_len, only_longest=only_longest))
    done = store.keys()
    marks = {sample: subject.marks_at(sample) for sample in {cell.sample for cell in all_cells}}
    keys = {cell: cell.key(marks[cell.sample]) for cell in all_cells}  # of the base model, so before it is extended
    for cell in all_cells:
        if keys[cell] in done:
            progress(cell, {})
    missing = dict.fromkeys(cell for cell in all_cells if keys[cell] not in done)  # two names may mean one extension
    with closing(measuring(subject, list(missing))) as finished:
        for cell, result in finished:
            if FAILED in result:
                store.fail(keys[cell], result[FAILED])
            else:
                store.put(keys[cell], result)
            progress(cell, result)
    return condense(keys, store)


def result_of(subject: Subject, cell: Cell) -> Json:
    """The result of a cell and its time; or that it ran out of memory, after which other cells can still be measured.

    On a CPU this is processor time: several cells run at once, and wall time would depend on the others.
    """
    clock = time.process_time if subject.model.device.type == "cpu" else time.perf_counter
    began = clock()
    try:
        with name_errors(cell.task.title):
            result = cell.task.measure(subject, cell.length, cell.sample)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
    else:
        return {"result": result, "seconds": clock() - began, "device": device_name(subject)}
    gc.collect()  # memory that the failure still holds
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return {FAILED: OUT_OF_MEMORY}


def device_name(subject: Subject) -> str:
    """The kind of device, for what depends on it: seconds."""
    device = subject.model.device
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def in_words(cell: Cell, result: Json) -> str:
    """What one text alone says: a first figure, long before a table."""
    why, headline = result.get(FAILED), cell.task.headline
    said = why or f"{headline} {cell.task.condense((result['result'],))[headline].value:.2f}"
    return f"at {cell.length:,} tokens, text {cell.sample + 1}: {said}"


def condense(keys: Mapping[Cell, str], store: Store) -> list[ResultRow]:
    """The results that the store has for these cells, as rows."""
    groups: dict[Group, list[Json]] = {}
    failed: dict[Group, str] = {}
    for cell, key in keys.items():
        group, result = (cell.extension, cell.task, cell.length), store.get(key)
        groups.setdefault(group, []).extend([result] if result is not None else [])
        why = store.failure(key) if result is None else None
        failed |= {group: why} if why else {}
    return [
        ResultRow(*group, {}, (), 0.0, failed[group]) if group in failed else _row(*group, results)
        for group, results in groups.items()
        if results or group in failed
    ]


def _row(extension: Extension, task: Task, length: int, results: Sequence[Json]) -> ResultRow:
    samples = tuple(result["result"] for result in results)
    seconds = sum(result["seconds"] for result in results)
    devices = frozenset(result["device"] for result in results if "device" in result)
    return ResultRow(extension, task, length, task.condense(samples), samples, seconds, devices=devices)
