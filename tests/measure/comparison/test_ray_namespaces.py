"""A Ray cluster of three nodes, each with a network of its own: a slow node, and one whose cable is pulled.

The namespaces are made with `ip`, which needs rights that not every machine gives: the test is skipped there.
"""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import dedent

import pytest

NODES, PORT, PATIENCE = 3, 6399, 240
TESTS = Path(__file__).parents[2]
# So that a node without network counts as dead after two seconds.
SOON = {f"RAY_health_check_{name}": str(value) for name, value in
        (("initial_delay_ms", 1000), ("period_ms", 500), ("timeout_ms", 500), ("failure_threshold", 3))}  # fmt: skip
PARTS = [
    *(("link", f"rwcable{number}") for number in range(NODES)),
    *(("netns", f"rw{number}") for number in range(NODES)),
    ("link", "rwbridge"),
]
DRIVER = """
    import json, sys, time
    from dataclasses import dataclass
    from pathlib import Path
    from typing import ClassVar

    import ray

    import ropewalk as rw
    from measure.subjects import model, subject
    from ropewalk.measure.comparison.cluster.crew import measure_on_cluster
    from ropewalk.measure.comparison.runner import run
    from ropewalk.measure.comparison.store import Store
    from ropewalk.measure.tasks import Context, Task

    place, address, *nodes = sys.argv[1:]
    place = Path(place)

    @dataclass(frozen=True, kw_only=True)
    class Where(Task):
        name: ClassVar[str] = "where"

        def measure(self, subject, length, sample):
            node = ray.util.get_node_ip_address()
            (place / f"{node}-{sample}").touch()
            if node == nodes[1]:
                time.sleep(3600)  # until its cable is pulled, and after
            if node == nodes[2]:
                time.sleep(1.5)  # the slow one
            while not (place / "pulled").exists():
                time.sleep(0.05)
            return {"node": node}

        def condense(self, measured):
            return {}

    ray.cloudpickle.register_pickle_by_value(sys.modules["__main__"])
    who = subject(place / "own", longest=96)
    lines = [rw.Extension(), rw.parse("yarn:factor=2")]
    found = run(who, lines, [Where(samples=6), Context(samples=2)], [96], Store(place / "far"),
                measuring=measure_on_cluster(address))
    near = run(who, lines, [Context(samples=2)], [96], Store(place / "near"))
    far = [row.samples for row in found if row.task.name == "context"]
    print(json.dumps({
        "nodes": [one["node"] for row in found if row.task.name == "where" for one in row.samples],
        "same": far == [row.samples for row in near],
    }))
"""


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True)


def inside(number, *command, **more):
    """A command in the namespace of a node."""
    return subprocess.run(
        ["ip", "netns", "exec", f"rw{number}", *command], check=True, text=True, capture_output=True, **more
    )


def address(number):
    return f"10.213.7.{number + 1}"


def remove():
    """What there is of the namespaces and what joins them."""
    for kind, name in PARTS:
        subprocess.run(["ip", kind, "del", name], capture_output=True, check=False)


@contextmanager
def networks():
    """Three namespaces on one bridge."""
    remove()  # a run that was killed leaves them behind
    try:
        ip("link", "add", "rwbridge", "type", "bridge")
        ip("link", "set", "rwbridge", "up")
        for number in range(NODES):
            ip("netns", "add", f"rw{number}")
            ip("link", "add", f"rwcable{number}", "type", "veth", "peer", "name", "eth0", "netns", f"rw{number}")
            ip("link", "set", f"rwcable{number}", "master", "rwbridge", "up")
            for words in (("addr", "add", f"{address(number)}/24", "dev", "eth0"), ("link", "set", "eth0", "up"),
                          ("link", "set", "lo", "up")):  # fmt: skip
                ip("-n", f"rw{number}", *words)
        yield
    finally:
        remove()


@pytest.fixture
def cluster(monkeypatch):
    """Its head's address, reached from the head's namespace."""
    pytest.importorskip("ray", reason="the extra cluster is not installed")
    ray = [str(Path(sys.executable).with_name("ray")), "start", "--num-cpus=1", "--object-store-memory=80000000"]
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "7" * 64}  # a head that others can reach asks for one
    for name, value in {**SOON, **token, "RAY_USAGE_STATS_ENABLED": "0"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")]))
    try:
        with networks(), TemporaryDirectory(ignore_cleanup_errors=True) as place:
            head = f"--port={PORT}", "--include-dashboard=false", f"--temp-dir={place}"
            try:
                inside(0, *ray, "--head", f"--node-ip-address={address(0)}", *head)
                for number in range(1, NODES):
                    inside(number, *ray, f"--node-ip-address={address(number)}", f"--address={address(0)}:{PORT}")
                yield f"{address(0)}:{PORT}"
            finally:
                for number in range(NODES):
                    end = inside(number, "sh", "-c", f"kill -9 $(ip netns pids rw{number} | grep -v $$) || true")
                    assert end.returncode == 0
    except (subprocess.CalledProcessError, FileNotFoundError) as refused:
        if shutil.which("ip") and "Operation not permitted" not in str(getattr(refused, "stderr", "")):
            raise
        pytest.skip("no network namespaces here")


@pytest.mark.nightly
def test_a_slow_node_and_one_without_network(cluster, tmp_path):
    """What was measured is what one process measures; the lost node's cells are measured by the others."""
    script, nodes = tmp_path / "driver.py", [address(number) for number in range(NODES)]
    script.write_text(dedent(DRIVER))

    def pull():
        end = time.monotonic() + PATIENCE
        while not list(tmp_path.glob(f"{nodes[1]}-*")) and time.monotonic() < end:
            time.sleep(0.1)
        ip("link", "set", "rwcable1", "down")
        (tmp_path / "pulled").touch()

    pulling = threading.Thread(target=pull)
    pulling.start()
    done = inside(0, sys.executable, str(script), str(tmp_path), cluster, *nodes, timeout=PATIENCE)
    pulling.join()
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["same"]
    assert set(result["nodes"]) == {nodes[0], nodes[2]}
    assert len(result["nodes"]) == 12
