"""Which functions of the package a test reaches, and how long it takes: written down when it first runs.

A function is its file and its name with what it stands in: what is known stays true when lines move.
"""

import json
import os
import resource
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

WAITED = 3  # times the seconds of computing: other processes are not counted
ONE_TEST = 60  # seconds of computing: what takes longer hangs


class Reached:
    """What is known: of each test its seconds, and its functions by file. Several processes may write and read it."""

    def __init__(self, log: Path) -> None:
        self.log, self.read, self.tests = log, 0, {}
        self.left: set[str] = set()  # tests that hang without a mutant
        log.touch()

    def learn(self, process: int = 0) -> str:
        """Read what was added. The test that this process began and did not end, if there is one."""
        begun = ""
        with self.log.open("rb") as lines:
            lines.seek(self.read)
            for line in lines:
                try:
                    row = json.loads(line)
                except json.JSONDecodeError:  # it was killed while it wrote
                    continue
                if row.get("left"):
                    self.left.add(row["test"])
                    continue
                if row["process"] == process:
                    begun = row["test"] if "seconds" not in row else ""
                if row.get("passed"):
                    self.tests[row["test"]] = row["seconds"], {file: set(of) for file, of in row["functions"].items()}
            self.read = lines.tell()
        return begun

    def write(self, row: dict[str, Any]) -> None:
        """In one piece, or two processes would mix their lines."""
        with self.log.open("ab", buffering=0) as lines:
            lines.write(json.dumps(row).encode() + b"\n")

    def leave_out(self, test: str) -> None:
        """From here on, and when the sample goes on another time."""
        self.write({"test": test, "left": True})
        self.learn()

    def of(self, file: str, function: str) -> list[str]:
        """Tests that reach a function; if none does, its file; if none, its folder. Those that reach little first."""
        reaching: list[list[tuple[int, float, str]]] = [[], [], []]
        for test, (seconds, functions) in self.tests.items():
            row = sum(map(len, functions.values())), seconds, test
            if function in functions.get(file, ()):
                reaching[0].append(row)
            if file in functions:
                reaching[1].append(row)
            if any(Path(other).parent == Path(file).parent for other in functions):
                reaching[2].append(row)
        return [test for *_, test in sorted(next(filter(None, reaching), []))]


class Watch:
    """A plugin of pytest: leaves tests out, stops when the time is spent, and writes what each test reaches."""

    def __init__(self, known: Reached, root: Path, tests: list[str], seconds: int, learns: bool) -> None:
        self.known, self.root, self.learns = known, root, learns
        self.until, self.latest = time.process_time() + seconds, time.monotonic() + WAITED * seconds
        self.places = {test.partition("::")[0]: -place for place, test in enumerate(reversed(tests))}
        self.failed = False

    def pytest_collection_modifyitems(self, items):
        if self.learns:  # of each function the first case that is run by day, or else the first
            by_day = sorted(items, key=lambda item: item.get_closest_marker("nightly") is not None)
            first = {(item.path, item.cls, item.originalname): item for item in reversed(by_day)}
            items[:] = [item for item in by_day if item in first.values() and item.nodeid not in self.known.tests]
        items[:] = [item for item in items if item.nodeid not in self.known.left]
        if not self.learns:  # Files are imported in the suite's order, since some put a folder before others' names.
            items.sort(key=lambda item: self.places[item.nodeid.partition("::")[0]])

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item):
        return True if time.process_time() > self.until or time.monotonic() > self.latest else None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item):
        self.codes, self.began, self.failed = set(), time.process_time(), False
        resource.setrlimit(resource.RLIMIT_CPU, (int(self.began) + ONE_TEST, resource.RLIM_INFINITY))
        self.known.write({"test": item.nodeid, "process": os.getpid()})
        if self.learns:
            threading.settrace(self._trace)
            sys.settrace(self._trace)
        return (yield)

    def _trace(self, frame, event, argument):
        self.codes.add(frame.f_code)

    def pytest_runtest_logreport(self, report):
        self.failed |= report.failed
        if report.when == "teardown":
            sys.settrace(None)
            seconds, passed = round(time.process_time() - self.began, 2), self.learns and not self.failed
            row = {"test": report.nodeid, "process": os.getpid(), "seconds": seconds, "passed": passed}
            self.known.write(row | {"functions": self._functions()})

    def _functions(self):
        functions = defaultdict(list)
        for code in self.codes:
            if code.co_filename.startswith(f"{self.root}/ropewalk/"):
                functions[code.co_filename[len(str(self.root)) + 1 :]].append(code.co_qualname)
        return functions
