"""Cells on a Ray cluster: who measures what, what a death costs, and that the numbers are those of one process."""

import pickle
import shutil
import socket
import sys
import threading
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import ClassVar

import pytest

import ropewalk as rw
from ropewalk.errors import DoesNotFit, InvalidValue, Unreadable
from ropewalk.evaluation.compare import ray_cluster
from ropewalk.evaluation.compare.cells import cells
from ropewalk.evaluation.compare.ray_cluster import CellQueue, RayWorker, on_cluster, reachable
from ropewalk.evaluation.compare.runner import run
from ropewalk.evaluation.compare.store import Store
from ropewalk.evaluation.tasks import Context, Damage, Passkey, Task
from ropewalk.evaluation.tasks.task_line import tasks_named

from evaluation.subjects import subject

EXTENSIONS = [rw.Extension(), rw.parse("window:window=8"), rw.parse("yarn:factor=2")]
CELLS = list(cells(EXTENSIONS, [Context(samples=4)], [32], 32))


# Who gets what


def handed_out(waiting, workers):
    """What each of several equally fast workers gets."""
    got = [[] for _ in range(workers)]
    while waiting:
        for own in got:
            if waiting:
                others = [each[-1].extension for each in got if each and each is not own]
                own.append(waiting.next(own[-1].extension if own else None, others))
    return got


@pytest.mark.parametrize("workers", [1, 2, 3, 5])
def test_every_cell_once_and_extensions_change_rarely(workers):
    got = handed_out(CellQueue(CELLS), workers)
    assert sorted(str(cell) for own in got for cell in own) == sorted(map(str, CELLS))
    changes = [sum(a.extension != b.extension for a, b in pairwise(own)) for own in got]
    assert sum(changes) <= {1: 2, 2: 2, 3: 0, 5: 2}[workers]


def test_one_worker_goes_in_order_and_what_comes_back_is_last():
    assert handed_out(CellQueue(CELLS), 1) == [CELLS]
    waiting = CellQueue(CELLS)
    waiting.put_back(waiting.next(None, []))
    assert handed_out(waiting, 1) == [[*CELLS[1:4], CELLS[0], *CELLS[4:]]]


def test_where_there_is_room():
    def node(alive=True, **resources):
        return {"Alive": alive, "Resources": resources}

    assert ray_cluster._places([node(CPU=4, memory=10), node(CPU=2, memory=100)], 4) == ("CPU", 2 + 2)
    assert ray_cluster._places([node(CPU=9, memory=99), node(CPU=9, GPU=2, memory=99)], 4) == ("GPU", 2)
    assert ray_cluster._places([node(CPU=2, memory=99), node(False, CPU=9, GPU=1, memory=99)], 4) == ("CPU", 2)
    with pytest.raises(DoesNotFit, match="nodes has a CPU and 3 GiB for the model; add a larger node"):
        ray_cluster._places([node(CPU=2, memory=2**30), node(CPU=0, memory=2**40)], 3 * 2**30)


def test_addresses(monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        assert [reachable(each) for each in ("local", "auto", address)] == ["local", "auto", address]
        monkeypatch.setenv("RAY_ADDRESS", address)
        assert reachable("auto") == address
    with pytest.raises(Unreadable, match=f"--ray must be the address of a running Ray cluster, got '{address}'"):
        reachable("auto")
    for wrong in ("", "head", "ray://head:10001", ":6379", "a b:"):
        with pytest.raises(InvalidValue, match="--ray must be local, auto or HOST:PORT"):
            reachable(wrong)


@pytest.mark.parametrize("why", [Exception, TimeoutError, RuntimeError, ConnectionError])
def test_a_cluster_that_does_not_start_in_time_is_one_line(why, monkeypatch):
    """Ray raises a plain Exception with several lines."""
    ended = []

    def init(**_):
        raise why("The current node timed out during startup.\nThis could happen because ...")

    monkeypatch.setattr(ray_cluster, "_ray", lambda: SimpleNamespace(init=init, shutdown=lambda: ended.append(True)))
    for address, words in {
        "local": "a cluster that starts on this machine",
        "h:1": "the address of a running Ray cluster",
    }.items():
        said = f"{words}, got '{address}'; The current node timed out during startup; "
        with pytest.raises(Unreadable, match=said) as refused, ray_cluster.connected(address):
            pass
        assert "\n" not in str(refused.value)
    assert ended == [True, True]


# What a node needs


def test_a_packed_subject_needs_no_corpus(tmp_path):
    who = subject(tmp_path)
    packed = pickle.dumps(who.packed(4))
    tasks = [(Context(samples=4), 64), (Passkey(samples=2), 200)]
    expected = [task.measure(who, length, 1) for task, length in tasks]
    shutil.rmtree(tmp_path / "texts")
    other = pickle.loads(packed)
    assert [task.measure(other, length, 1) for task, length in tasks] == expected
    assert other.marks == who.marks
    with pytest.raises(DoesNotFit, match=r"100 held-out documents.*it has"):
        other.passages(100)


def test_a_node_with_another_ropewalk_is_refused(tmp_path):
    with pytest.raises(DoesNotFit, match=r"ropewalk on a node must be the version of the driver \(0.0.0\)"):
        RayWorker().load(subject(tmp_path), "0.0.0")


# A cluster of straw: deaths when and where they are wanted


class Straw:
    """The used part of Ray in one process: a worker has a name, and dies on demand."""

    exceptions = SimpleNamespace(
        RayError=type("RayError", (Exception,), {}), RayTaskError=type("RayTaskError", (Exception,), {})
    )

    def __init__(self, dies, slots=2):
        self.dies, self.slots, self.work, self.said = dies, slots, {}, []
        self.gone = set()

    def nodes(self):
        return [{"Alive": True, "Resources": {"CPU": self.slots, "memory": 2**40}}]

    def put(self, what):
        return what

    def remote(self, kind):
        return self

    def options(self, **_):
        made = iter(range(1000))
        return SimpleNamespace(remote=lambda: self._worker(next(made)))

    def _worker(self, name):
        def later(cell=None, *_):
            self.work[reference := object()] = (name, cell)
            return reference

        return SimpleNamespace(
            name=name, load=SimpleNamespace(remote=lambda *_: later()), measure=SimpleNamespace(remote=later)
        )

    def kill(self, worker):
        self.gone.add(worker.name)

    def wait(self, references, num_returns):
        """The oldest job of a worker for which there is a slot."""
        alive = sorted({self.work[each][0] for each in references} - self.gone)
        return [next(each for each in references if self.work[each][0] in alive[: self.slots])], None

    def get(self, reference):
        name, cell = self.work[reference]
        if self.dies(name, cell):
            raise self.exceptions.RayError("first line\nthe node is gone")
        self.said.append((name, cell))
        return {"result": {"by": name}, "seconds": 0.0}


def straw(monkeypatch, tmp_path, dies):
    fake = Straw(dies)
    monkeypatch.setattr(ray_cluster, "_ray", lambda: fake)
    found = list(ray_cluster._Crew(subject(tmp_path), CELLS).finished())
    return fake, [cell for cell, _ in found], found


def test_nobody_dies(monkeypatch, tmp_path):
    _, done, found = straw(monkeypatch, tmp_path, lambda name, cell: False)
    assert sorted(map(str, done)) == sorted(map(str, CELLS))
    assert {result["result"]["by"] for _, result in found} == {0, 1}


@pytest.mark.parametrize("at", [*range(len(CELLS)), "loading"])
def test_a_death_costs_nothing_but_time(monkeypatch, tmp_path, at):
    deaths = []

    def dies(name, cell):
        if not deaths and name == 1 and (cell is None if at == "loading" else cell == CELLS[at]):
            deaths.append(cell)
        return bool(deaths) and name == 1  # and never comes back

    _, done, _ = straw(monkeypatch, tmp_path, dies)
    assert sorted(map(str, done)) == sorted(map(str, CELLS))


def test_a_cell_that_kills_whoever_has_it_is_named(monkeypatch, tmp_path):
    kept = []
    fake = Straw(lambda name, cell: cell == CELLS[1] or name == 0)
    monkeypatch.setattr(ray_cluster, "_ray", lambda: fake)
    with pytest.raises(DoesNotFit, match=r"the workers of the cluster die in context.*the node is gone"):
        kept.extend(cell for cell, _ in ray_cluster._Crew(subject(tmp_path), CELLS).finished())
    assert len(fake.gone) == 1 + ray_cluster.TRIES
    assert CELLS[1] not in kept
    assert set(CELLS[2:4]) < set(kept)  # of the same extension


def test_workers_that_never_load_are_not_replaced_for_ever(monkeypatch, tmp_path):
    with pytest.raises(DoesNotFit, match="the workers of the cluster die in loading the model"):
        straw(monkeypatch, tmp_path, lambda name, cell: cell is None)


# A cluster of two nodes


PATIENCE = 300


def waited(path):
    """Until something is there, or for ever too long."""
    end = time.monotonic() + PATIENCE
    while not path.exists() and time.monotonic() < end:
        time.sleep(0.05)


@dataclass(frozen=True, kw_only=True)
class Where(Task):
    """The node that measures. The doomed one never finishes its second cell, and the other waits for that."""

    name: ClassVar[str] = "where"
    doomed: str = ""
    place: str = ""

    def measure(self, subject, length, sample):
        import ray

        node, stuck = ray.get_runtime_context().get_node_id(), Path(self.place) / "stuck"
        if node == self.doomed and list(Path(self.place).iterdir()):
            stuck.touch()
            time.sleep(PATIENCE)
        elif node == self.doomed:
            (Path(self.place) / "first").touch()
        else:
            waited(stuck)
        return {"node": node}

    def condense(self, measured):
        return {}


@pytest.fixture
def nodes(monkeypatch):
    """Two nodes of one CPU. The paths of their sockets have to be short."""
    ray = pytest.importorskip("ray", reason="the extra cluster is not installed")
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    sizes = {"num_cpus": 1, "object_store_memory": 80 * 2**20, "include_dashboard": False}
    with TemporaryDirectory(ignore_cleanup_errors=True) as place:
        monkeypatch.setenv("RAY_TMPDIR", place)
        made = Cluster(initialize_head=True, head_node_args=sizes)
        second = made.add_node(**sizes)
        ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
        yield made, second
        ray.cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
        made.shutdown()


def test_two_nodes_and_the_death_of_one(nodes, tmp_path):
    made, second = nodes
    flags = tmp_path / "flags"
    flags.mkdir()

    def murder():
        waited(flags / "stuck")
        made.remove_node(second, allow_graceful=False)

    threading.Thread(target=murder, daemon=True).start()
    real = [Context(samples=2), Passkey(samples=2, filler="grass"), Damage(samples=2)]
    told, who = [], subject(tmp_path, longest=96)
    given = (EXTENSIONS, [Where(samples=6, doomed=second.node_id, place=str(flags)), *real], [96])
    found = run(who, *given, Store(tmp_path / "far"), measuring=on_cluster(made.address), progress=told.append)
    expected = run(who, EXTENSIONS, real, [96], Store(tmp_path / "near"))
    numbers = {(str(row.extension), row.task): row.samples for row in found}
    assert {(str(row.extension), row.task): row.samples for row in expected}.items() <= numbers.items()
    assert len(told) == len(set(told)) == 3 * (6 + 3 * 2)
    where = [each["node"] for row in found if row.task.name == "where" for each in row.samples]
    assert where.count(second.node_id) == 1
    assert len(set(where)) == 2


ALONE = """
from dataclasses import dataclass
from typing import ClassVar
from ropewalk.evaluation.metrics.intervals import LOSS, means
from ropewalk.evaluation.tasks.signature import Task

@dataclass(frozen=True, kw_only=True)
class Alone(Task):
    name: ClassVar[str] = "alone"
    more: int = 0

    def measure(self, subject, length, sample):
        import sys
        return {"loss": float(length + self.more), "module": [name for name in sys.modules if "ropewalk_task_" in name]}

    def condense(self, results):
        return means(results, loss=LOSS)
"""


def test_a_task_of_a_file_goes_to_the_workers_with_its_file(tmp_path):
    pytest.importorskip("ray", reason="the extra cluster is not installed")
    path = tmp_path / "alone.py"
    path.write_text(ALONE)
    tasks = tasks_named(f"{path}:more=5", 2)
    path.unlink()
    rows = run(
        subject(tmp_path), [rw.Extension()], tasks[1:], [64], Store(tmp_path / "s"), measuring=on_cluster("local")
    )
    (row,) = rows
    assert [sample["loss"] for sample in row.samples] == [69, 69]
    assert [sample["module"] for sample in row.samples] == [[type(tasks[1]).__module__]] * 2
