"""Cells measured on a Ray cluster: workers have the model; this process hands out cells and writes the store.

A worker is an actor with a GPU, or with a CPU if the cluster has no GPU. It gets the model and the passages once,
through Ray's object store, so that nodes need no common files, only Ropewalk. It measures one cell at a time, and stays
with one extension as long as that has cells. When a worker dies, another one gets its cell.
"""

from __future__ import annotations

import os
import re
import socket
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch

from ropewalk.errors import DoesNotFit, InvalidValue, Unreadable, not_installed
from ropewalk.evaluation.compare.cells import Cell
from ropewalk.evaluation.compare.runner import Finished, Measuring, result_of
from ropewalk.evaluation.material.subject import Subject
from ropewalk.extension import Extension
from ropewalk.spec import Json

TRIES = 3  # deaths over one cell, or while loading beyond one for each worker: more is no accident
SPARE = 2.0  # memory of a worker, in sizes of its model
LOCAL = "local"  # a cluster on this machine, for this command only
PATIENCE = 5.0  # seconds for a cluster to answer; Ray waits minutes and then ends the process
RUNNING = "start one with ray start --head, or use local"


def on_cluster(address: str) -> Measuring:
    """A way for `run` to measure: on the cluster at HOST:PORT, the known one (auto), or a new one (local)."""
    place = reachable(address)

    def measuring(subject: Subject, missing: Sequence[Cell]) -> Generator[Finished, None, None]:
        if missing:
            with connected(place):
                yield from _Crew(subject, missing).finished()

    return measuring


def reachable(address: str) -> str:
    """Refuse a wrong address before a model is loaded."""
    place = os.environ.get("RAY_ADDRESS", address) if address == "auto" else address
    if place in (LOCAL, "auto"):
        return place
    match = re.fullmatch(r"([^/:]+):(\d{1,5})", place)
    if not match:
        raise InvalidValue("--ray", "local, auto or HOST:PORT", place)
    try:
        socket.create_connection((match[1], int(match[2])), timeout=PATIENCE).close()
    except (OSError, OverflowError, UnicodeError) as reason:
        raise _no_cluster(place, reason) from reason
    return place


@contextmanager
def connected(address: str) -> Iterator[None]:
    """Ray for as long as a block lasts. A local cluster leaves no files and sends no statistics."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray = _ray()
    options: dict[str, Any] = {"address": address, "log_to_driver": False, "logging_level": "ERROR"}
    with ExitStack() as after:
        if address == LOCAL:
            place = after.enter_context(TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True))
            options |= {"include_dashboard": False, "_temp_dir": place}
        after.callback(ray.shutdown)  # also after a start that failed
        try:
            ray.init(**options)
        except Exception as reason:  # Ray raises a plain Exception on time-outs
            raise _no_cluster(address, reason) from reason
        yield


def _ray() -> Any:
    try:
        import ray
    except ModuleNotFoundError as missing:
        raise not_installed(missing) from missing
    return ray


def _no_cluster(address: str, reason: Exception) -> Unreadable:
    words = next(iter(str(reason).splitlines()), type(reason).__name__).rstrip(".")
    if address == LOCAL:
        remedy = f"{words}; try again when the machine is less busy, or leave out --ray"
        return Unreadable("--ray", "a cluster that starts on this machine", address, remedy=remedy)
    return Unreadable("--ray", "the address of a running Ray cluster", address, remedy=f"{words}; {RUNNING}")


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

    def load(self, subject: Subject, release: str) -> None:
        """Take the model. Its facts are read before it is extended."""
        if release != version("ropewalk"):
            raise DoesNotFit("ropewalk on a node", f"the version of the driver ({release})", version("ropewalk"))
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
        self._ray = _ray()
        self._waiting = CellQueue(cells)
        self._free: list[_Job] = []  # workers with their last jobs
        self._jobs: dict[Any, _Job] = {}  # by Ray's reference to the result
        self._deaths: Counter[Cell | None] = Counter()
        need = SPARE * sum(parameter.nbytes for parameter in subject.model.parameters())
        kind, places = _places(self._ray.nodes(), need)
        self._actors = self._ray.remote(RayWorker).options(**{f"num_{kind.lower()}s": 1}, memory=int(need))
        self._subject = self._ray.put(subject.packed(max(cell.task.samples for cell in cells)))
        self._size = min(places, len(cells))
        for _ in range(self._size):
            self._hire()

    def finished(self) -> Generator[Finished, None, None]:
        """Cells with their results, as they come."""
        while self._waiting or any(job.cell for job in self._jobs.values()):
            while self._waiting and self._free:
                self._employ(self._free.pop())
            (reference,), _ = self._ray.wait(list(self._jobs), num_returns=1)
            job = self._jobs.pop(reference)
            try:
                result = self._ray.get(reference)
            except self._ray.exceptions.RayTaskError as failed:
                raise failed.cause from failed
            except self._ray.exceptions.RayError as death:
                self._replace(job, death)
                continue
            self._free.append(job)
            self._deaths.pop(job.cell, None)
            if job.cell is not None:
                yield job.cell, result

    def _hire(self) -> None:
        worker = self._actors.remote()
        self._jobs[worker.load.remote(self._subject, version("ropewalk"))] = _Job(worker, None)

    def _employ(self, job: _Job) -> None:
        others = [other.cell.extension for other in self._jobs.values() if other.cell]
        cell = self._waiting.next(job.cell.extension if job.cell else None, others)
        self._jobs[job.worker.measure.remote(cell)] = _Job(job.worker, cell)

    def _replace(self, job: _Job, death: Exception) -> None:
        """Start another worker where there is room, and give the cell to the first one that is free."""
        self._ray.kill(job.worker)  # it may be unreachable and alive
        self._deaths[job.cell] += 1
        if self._deaths[job.cell] == TRIES + (0 if job.cell else self._size):
            job_name = job.cell.task.name if job.cell else "loading the model"
            sentence = f"the workers of the cluster die in {job_name}: {str(death).splitlines()[-1].strip()}"
            raise DoesNotFit.because("--ray", sentence, remedy="give its nodes more memory, and the same packages")
        if job.cell is not None:
            self._waiting.put_back(job.cell)
        self._hire()


def _places(nodes: Sequence[Json], need: float) -> tuple[str, int]:
    """GPU or CPU, and for how many workers of `need` bytes there is room."""
    alive = [node["Resources"] for node in nodes if node["Alive"]]
    kind = "GPU" if any(node.get("GPU", 0) >= 1 for node in alive) else "CPU"
    places = sum(int(min(node.get(kind, 0), node.get("memory", 0) // need)) for node in alive)
    if places < 1:
        sentence = f"none of the cluster's {len(alive)} nodes has a {kind} and {need / 2**30:.3g} GiB for the model"
        raise DoesNotFit.because("--ray", sentence, remedy="add a larger node")
    return kind, places
