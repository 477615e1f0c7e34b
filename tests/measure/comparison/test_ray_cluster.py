"""Cells on a Ray cluster: who measures what, what a death costs, and that the numbers are those of one process."""

import os
import pickle
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import ClassVar

import pytest

import ropewalk as rw
from ropewalk.errors import Conflict, DoesNotFit, InvalidValue, Unreadable
from ropewalk.measure.comparison.cluster import connection, crew
from ropewalk.measure.comparison.cluster.connection import bytes_needed, connect, require_reachable, workers_with_room
from ropewalk.measure.comparison.cluster.crew import CellQueue, RayWorker, measure_on_cluster
from ropewalk.measure.comparison.runner import FAILED, OUT_OF_MEMORY, WORKER_DIED, cells, run
from ropewalk.measure.comparison.store import Store, installed_versions
from ropewalk.measure.tasks import Context, Damage, Passkey, Task
from ropewalk.measure.tasks.task_line import tasks_named

from measure.subjects import model, subject

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

    free = {"CPU": 99, "GPU": 99, "memory": 2**50}
    assert workers_with_room([node(CPU=4, memory=10), node(CPU=2, memory=100)], free, 4) == ("CPU", 2 + 2)
    assert workers_with_room([node(CPU=9, memory=99), node(CPU=9, GPU=2, memory=99)], free, 4) == ("GPU", 2)
    assert workers_with_room([node(CPU=2, memory=99), node(False, CPU=9, GPU=1, memory=99)], free, 4) == ("CPU", 2)
    with pytest.raises(DoesNotFit, match="nodes has a CPU and 3 GiB for a model with its text; add a larger node"):
        workers_with_room([node(CPU=2, memory=2**30), node(CPU=0, memory=2**40)], free, 3 * 2**30)


def test_what_other_jobs_hold_is_not_counted():
    nodes = [{"Alive": True, "Resources": {"CPU": 8, "memory": 100}}]
    assert workers_with_room(nodes, {"CPU": 3, "memory": 100}, 4) == ("CPU", 3)
    assert workers_with_room(nodes, {"CPU": 8, "memory": 9}, 4) == ("CPU", 2)
    for free in ({}, {"CPU": 0.5, "memory": 100}, {"CPU": 8, "memory": 3}):
        with pytest.raises(DoesNotFit, match="other jobs hold the cluster: none of its 1 nodes has a CPU and"):
            workers_with_room(nodes, free, 4)


def test_a_worker_needs_memory_for_its_text_too(tmp_path):
    short, long = (subject(tmp_path, longest=length) for length in (64, 128))
    weights = sum(parameter.nbytes for parameter in short.model.parameters())
    cache = 2 * 2 * 32 * 4  # bytes of a token: keys and values of 2 layers of 32 numbers in float32
    batch = 8192 * 4 * (300 + 12 * 32 + 2 * 64)
    assert bytes_needed(short) == 2 * weights + 64 * cache + batch
    assert bytes_needed(long) - bytes_needed(short) == 64 * cache


@contextmanager
def listening(answer=b""):
    """The address of a server that gives everyone the same answer; without one it stays silent."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        kept = []

        def serve():
            with suppress(OSError):
                while kept.append(server.accept()[0]) is None:
                    kept[-1].sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)  # else the thread keeps the port
        for each in kept:
            each.close()


HTTP_2 = bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))  # settings, without any


def test_addresses(monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with listening(HTTP_2) as address:
        assert [require_reachable(each) for each in ("local", "auto", address)] == ["local", "auto", address]
        monkeypatch.setenv("RAY_ADDRESS", address)
        assert require_reachable("auto") == address
    with pytest.raises(Unreadable, match=f"--ray must be the address of a running Ray cluster, got '{address}'"):
        require_reachable("auto")
    for wrong in ("", "head", "ray://head:10001", ":6379", "a b:"):
        with pytest.raises(InvalidValue, match="--ray must be local, auto or HOST:PORT"):
            require_reachable(wrong)


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"SSH-2.0-OpenSSH_9.2\r\n"])
def test_a_port_of_something_else_is_refused_at_once(answer, monkeypatch):
    """Ray would try it for three minutes, then end the process without a word."""
    monkeypatch.setattr(connection, "CLUSTER_TIMEOUT", 0.5)
    with listening(answer) as address:
        said = "timed out" if not answer else "what listens there is no Ray head"
        with pytest.raises(Unreadable, match=f"running Ray cluster, got '{address}'; {said}; "):
            require_reachable(address)
        monkeypatch.setenv("RAY_USE_TLS", "1")  # whose answers we cannot read
        assert require_reachable(address) == address


@pytest.mark.parametrize("why", [Exception, TimeoutError, RuntimeError, ConnectionError])
def test_a_cluster_that_does_not_start_in_time_is_one_line(why, monkeypatch):
    """Ray raises a plain Exception with several lines."""
    ended = []

    def init(**_):
        raise why("The current node timed out during startup.\nThis could happen because ...")

    fake = SimpleNamespace(is_initialized=lambda: False, init=init, shutdown=lambda: ended.append(True))
    monkeypatch.setattr(connection, "ray_package", lambda: fake)
    for address, words in {
        "local": "a cluster that starts on this machine",
        "h:1": "the address of a running Ray cluster",
    }.items():
        said = f"{words}, got '{address}'; The current node timed out during startup; "
        with pytest.raises(Unreadable, match=said) as refused, connection.connect(address):
            pass
        assert "\n" not in str(refused.value)
        assert ("set RAY_AUTH_MODE=token" in str(refused.value)) == (address != "local")
    assert ended == [True, True]


def test_ray_ending_the_process_is_one_line(monkeypatch):
    fake = SimpleNamespace(is_initialized=lambda: False, init=lambda **_: sys.exit(15), shutdown=lambda: None)
    monkeypatch.setattr(connection, "ray_package", lambda: fake)
    with pytest.raises(Unreadable, match="got 'h:1'; Ray ended with status 15; "), connect("h:1"):
        pass
    with pytest.raises(KeyboardInterrupt), connect("local"):  # nobody but the user sends it there
        pass


def faked(init, monkeypatch):
    """Ray with another start, and an end that ends nothing; the folders of its clusters."""
    places = []

    def begin(*, _temp_dir, **_):
        places.append(Path(_temp_dir))
        init(_temp_dir)

    fake = SimpleNamespace(is_initialized=lambda: False, init=begin, shutdown=lambda: None)
    monkeypatch.setattr(connection, "ray_package", lambda: fake)
    monkeypatch.setattr(connection, "GRACE", 0.3)
    return places


def test_what_ray_leaves_of_a_cluster_of_this_machine_is_ended(monkeypatch):
    """Its agents, which outlive it for a while and write into its folder; one hears no signal."""
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", "another's"])
    agents = []

    def init(place):
        agents.append(subprocess.Popen([sys.executable, "-c", deaf, f"--dir={place}"], stdout=subprocess.PIPE))
        assert agents[0].stdout.readline() == b"up\n"

    places = faked(init, monkeypatch)
    with connect("local"):
        assert agents[0].poll() is None
    try:
        agents[0].wait(5)
        assert other.poll() is None
        assert not places[0].exists()
    finally:
        other.kill()
        other.wait()
        agents[0].stdout.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("then", [None, ImportError, SystemExit])
def test_an_interrupt_that_a_library_swallows_ends_the_cluster(number, then, monkeypatch):
    """As during an import, where the command would otherwise end at once, and leave Ray's processes and its folder."""

    def init(_):
        with suppress(KeyboardInterrupt):
            os.kill(os.getpid(), number)
        if then:
            raise then("in the middle")

    places = faked(init, monkeypatch)
    with pytest.raises(KeyboardInterrupt), connect("local"):
        pass
    assert not places[0].exists()


# What a node needs


def test_a_packed_subject_needs_no_corpus(tmp_path):
    who = subject(tmp_path, model_=model.__wrapped__())  # one that nothing has put hooks on
    packed = pickle.dumps(who.packed(4))
    tasks = [(Context(samples=4), 64), (Passkey(samples=2), 200)]
    expected = [task.measure(who, length, 1) for task, length in tasks]
    shutil.rmtree(tmp_path / "texts")
    other = pickle.loads(packed)
    assert [task.measure(other, length, 1) for task, length in tasks] == expected
    assert other.marks == who.marks
    with pytest.raises(DoesNotFit, match=r"100 held-out documents.*it has"):
        other.passages(100)


@pytest.mark.parametrize("name", [*installed_versions()])
def test_a_node_with_another_install_is_refused(tmp_path, name):
    with pytest.raises(DoesNotFit, match=rf"{name} on node \S+ must be another, as on the driver, got '"):
        RayWorker().load(subject(tmp_path), {**installed_versions(), name: "another"})
    RayWorker().load(subject(tmp_path), installed_versions())


# A cluster of straw: deaths when and where they are wanted


class Straw:
    """The used part of Ray in one process: a worker has a name, and dies on demand."""

    exceptions = SimpleNamespace(
        RayError=(base := type("RayError", (Exception,), {})),
        RayTaskError=type("RayTaskError", (Exception,), {}),
        OutOfMemoryError=type("OutOfMemoryError", (base,), {}),
    )

    def __init__(self, dies, slots=2):
        self.dies, self.slots, self.work, self.said = dies, slots, {}, []
        self.gone = set()

    def nodes(self):
        return [{"Alive": True, "Resources": {"CPU": self.slots, "memory": 2**40}}]

    def available_resources(self):
        return {"CPU": self.slots, "memory": 2**40}

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

    def wait(self, references, num_returns, timeout):
        """The oldest job of a worker for which there is a slot."""
        if not self.slots:
            assert timeout is not None, "the driver would wait for ever"
            return [], references
        alive = sorted({self.work[each][0] for each in references} - self.gone)
        return [next(each for each in references if self.work[each][0] in alive[: self.slots])], None

    def get(self, reference):
        name, cell = self.work[reference]
        if death := self.dies(name, cell):
            raise death if isinstance(death, Exception) else self.exceptions.RayError("first line\nthe node is gone")
        self.said.append((name, cell))
        return {"result": {"by": name}, "seconds": 0.0}


def straw(monkeypatch, tmp_path, dies):
    fake = Straw(dies)
    monkeypatch.setattr(crew, "ray_package", lambda: fake)
    found = list(crew._Crew(subject(tmp_path), CELLS).finished())
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


def test_a_cell_that_kills_whoever_has_it_is_marked(monkeypatch, tmp_path):
    fake, done, found = straw(monkeypatch, tmp_path, lambda name, cell: cell == CELLS[1] or name == 0)
    assert sorted(map(str, done)) == sorted(map(str, CELLS))
    assert [cell for cell, result in found if FAILED in result] == [CELLS[1]]
    assert dict(found)[CELLS[1]] == {FAILED: WORKER_DIED}
    assert len(fake.gone) == 1 + crew.TRIES


def test_cells_alike_that_kill_cost_three_deaths_and_one_each(monkeypatch, tmp_path):
    fake, done, found = straw(monkeypatch, tmp_path, lambda name, cell: cell in CELLS[4:8])
    assert sorted(map(str, done)) == sorted(map(str, CELLS))
    assert {cell for cell, result in found if FAILED in result} == set(CELLS[4:8])
    assert len(fake.gone) == crew.TRIES - 1 + 4


def test_where_nothing_can_be_measured_the_run_stops_and_says_in_which_task(monkeypatch, tmp_path):
    with pytest.raises(DoesNotFit, match=r"the workers of the cluster die in context.*the node is gone"):
        straw(monkeypatch, tmp_path, lambda name, cell: cell is not None)


def test_a_node_on_which_no_worker_loads_does_not_end_the_run(monkeypatch, tmp_path):
    """As long as another one measures; no further worker is sent there after a while."""
    fake, done, _ = straw(monkeypatch, tmp_path, lambda name, cell: cell is None and name > 0)
    assert sorted(map(str, done)) == sorted(map(str, CELLS))
    assert len(fake.gone) == crew.TRIES + 2  # places for two


def test_a_death_without_a_message_is_named_by_its_kind(monkeypatch, tmp_path):
    with pytest.raises(DoesNotFit, match="die in loading the model: RayError"):
        straw(monkeypatch, tmp_path, lambda name, cell: Straw.exceptions.RayError(""))


def test_workers_that_never_load_are_not_replaced_for_ever(monkeypatch, tmp_path):
    with pytest.raises(DoesNotFit, match="the workers of the cluster die in loading the model"):
        straw(monkeypatch, tmp_path, lambda name, cell: cell is None)


@pytest.mark.parametrize("kind", ["OutOfMemoryError", "RayError"])
def test_a_worker_killed_for_memory_marks_its_cell(monkeypatch, tmp_path, kind):
    """Ray has an error of its own, or a message about an actor that died."""
    death = getattr(Straw.exceptions, kind)("The actor died.\nTask was killed due to the node running low on memory.")
    fake, done, found = straw(monkeypatch, tmp_path, lambda name, cell: cell in (CELLS[1], CELLS[6]) and death)
    assert sorted(map(str, done)) == sorted(map(str, CELLS))
    assert {cell for cell, result in found if result == {FAILED: OUT_OF_MEMORY}} == {CELLS[1], CELLS[6]}
    assert len(fake.gone) == 2


def test_a_cluster_without_room_is_not_waited_for_without_end(monkeypatch, tmp_path):
    fake = Straw(lambda name, cell: False)
    monkeypatch.setattr(crew, "ray_package", lambda: fake)
    hired = crew._Crew(subject(tmp_path), CELLS)
    fake.slots = 0
    with pytest.raises(DoesNotFit, match="no worker of the cluster had the model after 300 s; see whether"):
        list(hired.finished())


def test_a_worker_that_finds_no_place_any_more_is_not_waited_for_without_end(monkeypatch, tmp_path):
    """It has measured, then its node is gone."""
    fake = Straw(lambda name, cell: len(fake.said) > 4 and fake.leave(), slots=1)
    fake.leave = lambda: setattr(fake, "slots", 0) or fake.exceptions.RayError("the node is gone")
    monkeypatch.setattr(crew, "ray_package", lambda: fake)
    kept = []
    with pytest.raises(DoesNotFit, match="no worker of the cluster had the model after 300 s; see whether"):
        kept.extend(crew._Crew(subject(tmp_path), CELLS).finished())
    assert kept


# Clusters of three nodes


PATIENCE = 300


def waited(path):
    """Until something is there, or for ever too long."""
    end = time.monotonic() + PATIENCE
    while not path.exists() and time.monotonic() < end:
        time.sleep(0.05)


@dataclass(frozen=True, kw_only=True)
class Where(Task):
    """The node that measures. The doomed one never finishes its second cell, and the others wait for that and for the
    slow one."""

    name: ClassVar[str] = "where"
    doomed: str = ""
    slow: str = ""
    place: str = ""

    def measure(self, subject, length, sample):
        import ray

        node, (first, stuck, slow) = ray.get_runtime_context().get_node_id(), self.flags()
        if node == self.doomed and first.exists():
            stuck.touch()
            time.sleep(PATIENCE)
        elif node == self.doomed:
            first.touch()
        elif node == self.slow:
            slow.touch()
            waited(stuck)
            time.sleep(2.0)
        else:  # on a busy machine the slow node may begin when all is done
            waited(stuck)
            waited(slow)
        return {"node": node}

    def flags(self):
        return [Path(self.place) / name for name in ("first", "stuck", "slow")]

    def condense(self, measured):
        return {}


@pytest.fixture
def cluster(monkeypatch):
    """A head and a way to add nodes, of one CPU each. The paths of their sockets have to be short."""
    ray = pytest.importorskip("ray", reason="the extra cluster is not installed")
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    sizes = {"num_cpus": 1, "object_store_memory": 80 * 2**20, "include_dashboard": False}
    with TemporaryDirectory(ignore_cleanup_errors=True) as place:
        monkeypatch.setenv("RAY_TMPDIR", place)
        made = Cluster(initialize_head=True, head_node_args=sizes)
        ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
        yield made, lambda **more: made.add_node(**sizes, **more)
        ray.cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
        made.shutdown()


@pytest.mark.nightly
def test_a_slow_node_and_the_death_of_another(cluster, tmp_path):
    """The model's folder was on the driver alone, and is gone."""
    made, add = cluster
    doomed, slow = add(), add()
    flags = tmp_path / "flags"
    flags.mkdir()

    def murder():
        waited(flags / "stuck")
        made.remove_node(doomed, allow_graceful=False)

    threading.Thread(target=murder, daemon=True).start()
    model().save_pretrained(tmp_path / "model")
    who = subject(tmp_path, longest=96, model_=rw.load(tmp_path / "model"))
    shutil.rmtree(tmp_path / "model")
    real = [Context(samples=2), Passkey(samples=2, filler="grass"), Damage(samples=2)]
    told, where = [], Where(samples=6, doomed=doomed.node_id, slow=slow.node_id, place=str(flags))
    found = run(
        who, EXTENSIONS, [where, *real], [96], Store(tmp_path / "far"),
        measuring=measure_on_cluster(made.address), progress=lambda cell, _: told.append(cell),
    )  # fmt: skip
    expected = run(who, EXTENSIONS, real, [96], Store(tmp_path / "near"))
    numbers = {(str(row.extension), row.task): row.samples for row in found}
    assert {(str(row.extension), row.task): row.samples for row in expected}.items() <= numbers.items()
    assert len(told) == len(set(told)) == 3 * (6 + 3 * 2)
    nodes = [each["node"] for row in found if row.task.name == "where" for each in row.samples]
    assert nodes.count(doomed.node_id) == 1
    assert len(set(nodes)) == 3
    assert 0 < nodes.count(slow.node_id) < nodes.count(made.head_node.node_id)


OLDER = """
import importlib.metadata

installed = importlib.metadata.version
importlib.metadata.version = lambda name: "0.0.1" if name == "ropewalk" else installed(name)
"""


@pytest.mark.nightly
def test_a_node_whose_install_differs_is_refused(cluster, tmp_path):
    """Its Python begins with a module of its own, by which one package is older."""
    made, add = cluster
    (tmp_path / "node").mkdir()
    (tmp_path / "node" / "sitecustomize.py").write_text(OLDER)
    add()
    add(env_vars={"PYTHONPATH": os.pathsep.join([str(tmp_path / "node"), os.environ.get("PYTHONPATH", "")])})
    (tmp_path / "flags").mkdir()
    task = [Where(samples=4, place=str(tmp_path / "flags"))]  # the others wait
    rule = f"{installed_versions()['ropewalk']}, as on the driver, got '0.0.1'; install the same"
    with pytest.raises(DoesNotFit, match=rf"ropewalk on node \S+ must be {rule}"):
        run(
            subject(tmp_path), EXTENSIONS, task, [64], Store(tmp_path / "s"), measuring=measure_on_cluster(made.address)
        )


ALONE = """
from dataclasses import dataclass
from typing import ClassVar
from ropewalk.measure.metrics.intervals import LOSS, means
from ropewalk.measure.tasks.task import Task

@dataclass(frozen=True, kw_only=True)
class Alone(Task):
    name: ClassVar[str] = "alone"
    more: int = 0

    def measure(self, subject, length, sample):
        import sys
        return {"loss": float(length + self.more), "module": [name for name in sys.modules if "ropewalk_file_" in name]}

    def condense(self, results):
        return means(results, loss=LOSS)
"""


@pytest.mark.nightly
def test_a_task_of_a_file_goes_to_the_workers_with_its_file(tmp_path):
    pytest.importorskip("ray", reason="the extra cluster is not installed")
    path = tmp_path / "alone.py"
    path.write_text(ALONE)
    tasks = tasks_named(f"{path}:more=5", 2)
    path.unlink()
    rows = run(
        subject(tmp_path),
        [rw.Extension()],
        tasks[1:],
        [64],
        Store(tmp_path / "s"),
        measuring=measure_on_cluster("local"),
    )
    (row,) = rows
    assert [sample["loss"] for sample in row.samples] == [69, 69]
    assert [sample["module"] for sample in row.samples] == [[type(tasks[1]).__module__]] * 2


@dataclass(frozen=True, kw_only=True)
class Killed(Task):
    """At a length the kernel ends the process, as when memory is short."""

    name: ClassVar[str] = "killed"

    def measure(self, subject, length, sample):
        if length == 64:
            os.kill(os.getpid(), signal.SIGKILL)
        return {"length": length}

    def condense(self, measured):
        return {}


@pytest.mark.nightly
def test_what_the_kernel_kills_is_marked_and_the_rest_is_measured(tmp_path):
    ray = pytest.importorskip("ray", reason="the extra cluster is not installed")
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    rows = run(
        subject(tmp_path), [rw.Extension()], [Killed(samples=2)], [48, 64, 96], Store(tmp_path / "s"),
        measuring=measure_on_cluster("local"),
    )  # fmt: skip
    ray.cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
    assert {row.length: row.failed for row in rows} == {48: "", 64: WORKER_DIED, 96: ""}
    assert [len(row.samples) for row in rows if not row.failed] == [2, 2]


@pytest.mark.nightly
def test_a_connection_of_the_callers_is_used_and_stays(monkeypatch):
    ray = pytest.importorskip("ray", reason="the extra cluster is not installed")
    places = []

    class Kept(TemporaryDirectory):
        def __enter__(self):
            places.append(Path(super().__enter__()))
            return str(places[-1])

    monkeypatch.setattr(connection, "TemporaryDirectory", Kept)
    with connect("local"):
        assert list(places[0].iterdir())
        stored = ray.put(42)
        with pytest.raises(Conflict, match=r"connected to Ray already, .* local; pass auto .* ray\.shutdown\(\)"):
            connect("local").__enter__()
        with connect("auto"):
            assert ray.get(stored) == 42
        monkeypatch.setenv("RAY_ADDRESS", "head:6379")  # as in a submitted job
        with connect("head:6379"):
            assert ray.get(stored) == 42
        assert ray.get(stored) == 42
    assert not ray.is_initialized()
    assert not places[0].exists()


CONNECTED = """
import time
from ropewalk.cli.main import main
from ropewalk.measure.comparison.cluster.connection import connect
from ropewalk.cli import main as command

def run():
    with connect("local"):
        print("connected", flush=True)
        time.sleep(120)

command.run = run
main()
"""


@pytest.mark.nightly
@pytest.mark.timeout(180)
def test_sigterm_ends_a_cluster_of_this_machine_as_ctrl_c_does():
    """Ray would print its own stack, and leave its folder."""
    pytest.importorskip("ray", reason="the extra cluster is not installed")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with TemporaryDirectory(prefix="t") as short:  # Ray's sockets need short paths
        environment = {**os.environ, "TMPDIR": short}
        with subprocess.Popen([sys.executable, "-c", CONNECTED], env=environment, **pipes) as process:
            assert process.stdout.readline() == "connected\n"
            process.terminate()
            _, said = process.communicate(timeout=60)
        assert (process.returncode, said) == (130, "ropewalk: stopped\n")
        assert not list(Path(short).glob("ray-*"))
