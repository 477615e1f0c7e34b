"""Cells measured on a Ray cluster: workers have the model; this process hands out cells and writes the store.

A worker is an actor with a GPU, or with a CPU if the cluster has no GPU. It gets the model and the passages once,
through Ray's object store, so that nodes need no common files, only the same packages. It measures one cell at a time,
and stays with one extension as long as that has cells. When a worker dies, another one gets its cell. A cell is marked,
as on one machine, when its node killed a worker for memory, or when several workers died in it and others like it.
Ray's own means are not used. Its pool of actors ends with the first that dies. A restarted actor waits for a free CPU
with its cell while others are idle. Tasks instead of actors would load the model anew, or share a GPU by accident.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import torch

from ropewalk.errors import DoesNotFit
from ropewalk.extension.extension import Extension
from ropewalk.measure.comparison.cluster.connection import (
    bytes_needed,
    connect,
    ray_package,
    require_reachable,
    workers_with_room,
)
from ropewalk.measure.comparison.runner import (
    FAILED,
    OUT_OF_MEMORY,
    WORKER_DIED,
    Cell,
    Finished,
    Group,
    Measuring,
    result_of,
)
from ropewalk.measure.comparison.store import installed_versions, require_same
from ropewalk.measure.material.subject import Subject
from ropewalk.methods.spec import Json

TRIES = 3  # deaths over cells alike, or while loading beyond one for each worker: so many are no accident
LOADING = 300.0  # seconds in which nobody measures: longer, and the cluster has no room for a worker after all
SETTLING = 5.0  # seconds in which a cluster that has just started says what it has
SHORT_OF_MEMORY = "low on memory"  # in Ray's message about an actor that its node killed


def measure_on_cluster(address: str) -> Measuring:
    """A way for `run` to measure: on the cluster at HOST:PORT, the known one (auto), or a new one (local)."""
    place = require_reachable(address)

    def measuring(subject: Subject, missing: Sequence[Cell]) -> Generator[Finished, None, None]:
        if missing:
            with connect(place):
                yield from _Crew(subject, missing).finished()

    return measuring


class CellQueue:
    """The cells that are not handed out yet, by extension."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        self._left: dict[Extension, list[Cell]] = {cell.extension: [] for cell in cells}
        for cell in cells:
            self.put_back(cell)

    def __bool__(self) -> bool:
        return any(self._left.values())

    def put_back(self, cell: Cell) -> None:
        """It is handed out again, as the last of its extension."""
        self._left[cell.extension].insert(0, cell)

    def next(self, at: Extension | None, others: Sequence[Extension]) -> Cell:
        """A cell of the worker's extension; if there is none, of the extension with the most cells per worker."""
        if at is not None and self._left[at]:
            return self._left[at].pop()
        there = Counter(others)
        most = max(self._left, key=lambda extension: len(self._left[extension]) / (1 + there[extension]))
        return self._left[most].pop()


class RayWorker:
    """A model on some node, under one extension at a time."""

    def __init__(self) -> None:
        self._extended = ExitStack()
        self._at: Extension | None = None

    def load(self, subject: Subject, driver: Mapping[str, str]) -> None:
        """Take the model, where the same is installed as for the driver. Its facts are read before it is extended."""
        require_same(driver)
        model: Any = subject.model  # transformers' types do not know devices
        model.to("cuda" if torch.cuda.is_available() else "cpu")
        self._subject = subject
        _ = self._subject.facts, self._subject.warm

    def measure(self, cell: Cell) -> Json:
        """One cell's result."""
        if self._at != cell.extension:
            self._extended.close()
            self._at = None
            self._extended.enter_context(self._subject.under(cell.extension))
            self._at = cell.extension
        return result_of(self._subject, cell)


class _Job(NamedTuple):
    worker: Any
    cell: Cell | None  # None while it loads the model


class _Crew:
    """Workers on all nodes, busy until all cells are done."""

    def __init__(self, subject: Subject, cells: Sequence[Cell]) -> None:
        self._ray = ray_package()
        self._waiting = CellQueue(cells)
        self._free: list[_Job] = []  # workers with their last jobs
        self._jobs: dict[Any, _Job] = {}  # by Ray's reference to the result
        self._deaths: Counter[Cell | Group | None] = Counter()  # over a cell, over cells alike, while loading (None)
        self._measured = False
        need = bytes_needed(subject)
        kind, places = self._room(need)
        self._actors = self._ray.remote(RayWorker).options(**{f"num_{kind.lower()}s": 1}, memory=need)
        self._subject = self._ray.put(subject.packed(max(cell.task.samples for cell in cells)))
        self._size = min(places, len(cells))
        for _ in range(self._size):
            self._hire()

    def _room(self, need: int) -> tuple[str, int]:
        """The room that is free; a cluster that has just started tells of it a little later."""
        until = time.monotonic() + SETTLING
        while True:
            try:
                return workers_with_room(self._ray.nodes(), self._ray.available_resources(), need)
            except DoesNotFit:
                if time.monotonic() > until:
                    raise
                time.sleep(SETTLING / 20)

    def finished(self) -> Generator[Finished, None, None]:
        """Cells with their results, as they come."""
        while self._waiting or any(job.cell for job in self._jobs.values()):
            while self._waiting and self._free:
                self._employ(self._free.pop())
            job, reference = self._next()
            try:
                result = self._ray.get(reference)
            except self._ray.exceptions.RayTaskError as failed:
                raise failed.cause from failed
            except self._ray.exceptions.RayError as death:
                self._ray.kill(job.worker)  # it may be unreachable and alive
                yield from self._after(death, job)
                continue
            self._free.append(job)
            self._deaths.pop(_group(job.cell), None)
            if job.cell is not None:
                self._measured = True
                yield job.cell, result

    def _next(self) -> tuple[_Job, Any]:
        """The job that ends next; while no worker measures a cell there is a limit to waiting."""
        patience = None if any(job.cell for job in self._jobs.values()) else LOADING
        ended, _ = self._ray.wait(list(self._jobs), num_returns=1, timeout=patience)
        if not ended:
            sentence = f"no worker of the cluster had the model after {LOADING:.0f} s"
            raise DoesNotFit.because("--ray", sentence, remedy="see whether other jobs hold it: ray status")
        return self._jobs.pop(ended[0]), ended[0]

    def _for_memory(self, death: Exception) -> bool:
        """Whether the node killed the worker because it ran short of memory."""
        return isinstance(death, self._ray.exceptions.OutOfMemoryError) or SHORT_OF_MEMORY in str(death)

    def _hire(self) -> None:
        worker = self._actors.remote()
        self._jobs[worker.load.remote(self._subject, installed_versions())] = _Job(worker, None)

    def _employ(self, job: _Job) -> None:
        others = [other.cell.extension for other in self._jobs.values() if other.cell]
        cell = self._waiting.next(job.cell.extension if job.cell else None, others)
        self._jobs[job.worker.measure.remote(cell)] = _Job(job.worker, cell)

    def _after(self, death: Exception, job: _Job) -> Generator[Finished, None, None]:
        """The cell of a dead worker is marked, or handed out again; and another worker comes, if there is hope."""
        if job.cell is not None and self._for_memory(death):
            yield job.cell, {FAILED: OUT_OF_MEMORY}
        elif self._too_many(job):
            others = self._measured if job.cell else bool(self._jobs or self._free)
            if not others:
                raise _hopeless(job, death)
            if job.cell is None:
                return  # the others go on, and no further worker is sent to where they die
            yield job.cell, {FAILED: WORKER_DIED}
        elif job.cell is not None:
            self._waiting.put_back(job.cell)
        self._hire()

    def _too_many(self, job: _Job) -> bool:
        """Whether too many died over this cell, over cells alike, or while loading."""
        over = {job.cell, _group(job.cell)}
        self._deaths.update(over)
        return max(self._deaths[kind] for kind in over) >= TRIES + (0 if job.cell else self._size)


def _hopeless(job: _Job, death: Exception) -> DoesNotFit:
    """Nothing was measured, or nobody is left."""
    what = job.cell.task.name if job.cell else "loading the model"
    *_, last = [type(death).__name__, *str(death).splitlines()]
    sentence = f"the workers of the cluster die in {what}: {last.strip()}"
    return DoesNotFit.because("--ray", sentence, remedy="give its nodes more memory, and the same packages")


def _group(cell: Cell | None) -> Group | None:
    """What cells alike have in common: they need the same memory."""
    return (cell.extension, cell.task, cell.length) if cell else None
