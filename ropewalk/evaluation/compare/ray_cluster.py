"""The same cells on a Ray cluster: workers hold the model, this process hands out cells and keeps the store.

A worker is an actor with a GPU, or with a CPU where the cluster has no GPU. It gets the model and the passages once,
through Ray's object store, so that nodes need no files in common; what they need is Ropewalk. It has one cell at a
time, of the extension that it is at as long as there are some. When it dies, its cell goes to another.
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

TRIES = 3  # deaths over one cell, or beyond one of each worker before any has loaded: more is no accident
SPARE = 2.0  # memory of a worker in sizes of its model
LOCAL = "local"  # a cluster of this machine, for this command alone
PATIENCE = 5.0  # seconds for a cluster to answer; Ray itself waits minutes and ends the process then
RUNNING = "start one with ray start --head, or say local"


def on_cluster(address: str) -> Measuring:
    """A way for `run` to measure: on the cluster at HOST:PORT, the one known here (auto), or one for itself (local)."""
    place = reachable(address)

    def measuring(subject: Subject, missing: Sequence[Cell]) -> Generator[Finished, None, None]:
        if missing:
            with connected(place):
                yield from _Crew(subject, missing).finished()

    return measuring


def reachable(address: str) -> str:
    """Refuse what can be no cluster, before a model is loaded."""
    place = os.environ.get("RAY_ADDRESS", address) if address == "auto" else address
    if place in (LOCAL, "auto"):
        return place
    found = re.fullmatch(r"([^/:]+):(\d{1,5})", place)
    if not found:
        raise InvalidValue("--ray", "local, auto or HOST:PORT", place)
    try:
        socket.create_connection((found[1], int(found[2])), timeout=PATIENCE).close()
    except (OSError, OverflowError, UnicodeError) as reason:
        raise _no_cluster(place, reason) from reason
    return place


@contextmanager
def connected(address: str) -> Iterator[None]:
    """Ray for as long as a block lasts. A cluster of its own leaves nothing behind and tells nobody of itself."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray = _ray()
    given: dict[str, Any] = {"address": address, "log_to_driver": False, "logging_level": "ERROR"}
    with ExitStack() as after:
        if address == LOCAL:
            place = after.enter_context(TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True))
            given |= {"include_dashboard": False, "_temp_dir": place}
        after.callback(ray.shutdown)  # also of what is left of a beginning that failed
        try:
            ray.init(**given)
        except Exception as reason:  # what times out is no error of its own: a bare Exception, in two places
            raise _no_cluster(address, reason) from reason
        yield


def _ray() -> Any:
    try:
        import ray
    except ModuleNotFoundError as missing:
        raise not_installed(missing) from missing
    return ray


def _no_cluster(address: str, reason: Exception) -> Unreadable:
    said = next(iter(str(reason).splitlines()), type(reason).__name__).rstrip(".")
    if address == LOCAL:
        remedy = f"{said}; try again when the machine has less to do, or leave out --ray"
        return Unreadable("--ray", "a cluster that starts on this machine", address, remedy=remedy)
    return Unreadable("--ray", "the address of a Ray cluster that runs", address, remedy=f"{said}; {RUNNING}")


class CellQueue:
    """The cells that are still to be handed out, by extension."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        self._left: dict[Extension, list[Cell]] = {cell.extension: [] for cell in cells}
        for cell in cells:
            self.put_back(cell)

    def __bool__(self) -> bool:
        return any(self._left.values())

    def put_back(self, cell: Cell) -> None:
        """To be handed out again, as the last of its extension."""
        self._left[cell.extension].insert(0, cell)

    def next(self, at: Extension | None, others: Sequence[Extension]) -> Cell:
        """A cell of the extension that a worker is at, or of the one with the most work for each who is at it."""
        if at is not None and self._left[at]:
            return self._left[at].pop()
        there = Counter(others)
        most = max(self._left, key=lambda each: len(self._left[each]) / (1 + there[each]))
        return self._left[most].pop()


class RayWorker:
    """A model on some node, under one extension at a time."""

    def __init__(self) -> None:
        self._extended = ExitStack()
        self._at: Extension | None = None

    def load(self, subject: Subject, release: str) -> None:
        """Take the model. Its facts are looked up now, while it is bare."""
        if release != version("ropewalk"):
            raise DoesNotFit("ropewalk on a node", f"that of the driver ({release})", version("ropewalk"))
        model: Any = subject.model  # transformers' own types know no device
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
    cell: Cell | None  # none while it loads the model


class _Crew:
    """Workers on every node, kept busy until all cells are done."""

    def __init__(self, subject: Subject, cells: Sequence[Cell]) -> None:
        self._ray = _ray()
        self._waiting = CellQueue(cells)
        self._free: list[_Job] = []  # workers, each with what it did last
        self._jobs: dict[Any, _Job] = {}  # by the reference under which Ray will have the result
        self._deaths: Counter[Cell | None] = Counter()
        need = SPARE * sum(each.nbytes for each in subject.model.parameters())
        kind, places = _places(self._ray.nodes(), need)
        self._hands = self._ray.remote(RayWorker).options(**{f"num_{kind.lower()}s": 1}, memory=int(need))
        self._subject = self._ray.put(subject.packed(max(cell.task.samples for cell in cells)))
        self._size = min(places, len(cells))
        for _ in range(self._size):
            self._hire()

    def finished(self) -> Generator[Finished, None, None]:
        """Each cell with its result, as they come."""
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
        worker = self._hands.remote()
        self._jobs[worker.load.remote(self._subject, version("ropewalk"))] = _Job(worker, None)

    def _employ(self, job: _Job) -> None:
        others = [each.cell.extension for each in self._jobs.values() if each.cell]
        cell = self._waiting.next(job.cell.extension if job.cell else None, others)
        self._jobs[job.worker.measure.remote(cell)] = _Job(job.worker, cell)

    def _replace(self, job: _Job, death: Exception) -> None:
        """Another worker, wherever there is room or will be, and the cell to whoever is free first."""
        self._ray.kill(job.worker)  # it may be out of reach and not dead
        self._deaths[job.cell] += 1
        if self._deaths[job.cell] == TRIES + (0 if job.cell else self._size):
            what = job.cell.task.name if job.cell else "loading the model"
            remedy = f"give its nodes more memory, and the same packages; {str(death).splitlines()[-1].strip()}"
            raise DoesNotFit("the cluster", f"one whose workers live through {what}", "deaths alone", remedy=remedy)
        if job.cell is not None:
            self._waiting.put_back(job.cell)
        self._hire()


def _places(nodes: Sequence[Json], need: float) -> tuple[str, int]:
    """GPU or CPU, and how many workers there is room for, each with so many bytes."""
    alive = [node["Resources"] for node in nodes if node["Alive"]]
    kind = "GPU" if any(each.get("GPU", 0) >= 1 for each in alive) else "CPU"
    places = sum(int(min(each.get(kind, 0), each.get("memory", 0) // need)) for each in alive)
    if places < 1:
        rule = f"one with a node that has a {kind} and {need / 2**30:.3g} GiB for the model"
        raise DoesNotFit("the cluster", rule, f"{len(alive)} nodes without")
    return kind, places
