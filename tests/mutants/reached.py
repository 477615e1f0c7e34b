"""Which functions of the package a test reaches, and how long it takes: written down when it first runs."""

import json
import resource
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path

import pytest

WAITED = 3  # times the seconds of computing: other processes are not counted
ONE_TEST = 60  # seconds of computing: what takes longer hangs


class Reached:
    """What is known: of each test its seconds, and the functions, as a file and the line where they begin."""

    def __init__(self, log: Path) -> None:
        self.log, self.read, self.tests = log, 0, {}
        self.failing: set[str] = set()  # tests and files that fail without a mutant
        log.touch()

    def learn(self) -> str:
        """Read what was added. The test that began last and did not end, if there is one."""
        begun = ""
        with self.log.open() as lines:
            lines.seek(self.read)
            for line in lines:
                try:
                    row = json.loads(line)
                except json.JSONDecodeError:  # it was killed while it wrote
                    continue
                if row.get("failing"):
                    self.failing.add(row["test"])
                    continue
                begun = row["test"] if "seconds" not in row else ""
                if row.get("passed"):
                    self.tests[row["test"]] = row["seconds"], {file: set(at) for file, at in row["functions"].items()}
            self.read = lines.tell()
        return begun

    def leave_out(self, test: str) -> None:
        """From here on, and when the sample goes on another time."""
        with self.log.open("a") as lines:
            print(json.dumps({"test": test, "failing": True}), file=lines)
        self.learn()

    def by_cost(self, file: str, function: int) -> list[str]:
        """Tests that reach a function, or any of the file (0), the cheapest first."""
        reach = [
            (seconds, test)
            for test, (seconds, functions) in self.tests.items()
            if function in functions.get(file, ()) or (not function and file in functions)
        ]
        return [test for _, test in sorted(reach)]


class Watch:
    """A plugin of pytest: leaves tests out, stops when the time is spent, and writes what each test reaches."""

    def __init__(self, known: Reached, root: Path, tests: list[str], seconds: int, first_cases: bool) -> None:
        self.known, self.root, self.first_cases = known, root, first_cases
        self.until, self.latest = time.process_time() + seconds, time.monotonic() + WAITED * seconds
        self.places = {test.partition("::")[0]: -place for place, test in enumerate(reversed(tests))}
        self.failed = False

    def pytest_collection_modifyitems(self, items):
        items[:] = [item for item in items if item.nodeid not in self.known.failing]
        if self.first_cases:
            first = {(item.path, item.cls, item.originalname): item for item in reversed(items)}
            items[:] = [item for item in items if item in first.values() and item.nodeid not in self.known.tests]
        # Files are imported in the suite's order, since some put a folder before others' names, and run in ours.
        items.sort(key=lambda item: self.places[item.nodeid.partition("::")[0]])

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item):
        return True if time.process_time() > self.until or time.monotonic() > self.latest else None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item):
        self.codes, self.began, self.failed = set(), time.process_time(), False
        resource.setrlimit(resource.RLIMIT_CPU, (int(self.began) + ONE_TEST, resource.RLIM_INFINITY))
        self._write({"test": item.nodeid})
        if item.nodeid not in self.known.tests:
            threading.settrace(self._trace)
            sys.settrace(self._trace)
        return (yield)

    def _trace(self, frame, event, argument):
        self.codes.add(frame.f_code)

    def pytest_runtest_logreport(self, report):
        self.failed |= report.failed
        if report.when == "teardown":
            sys.settrace(None)
            row = {
                "test": report.nodeid,
                "seconds": round(time.process_time() - self.began, 2),
                "passed": not self.failed,
            }
            self._write({**row, "functions": self._functions()})

    def _functions(self):
        functions = defaultdict(list)
        for code in self.codes:
            if code.co_filename.startswith(f"{self.root}/ropewalk/"):
                functions[code.co_filename[len(str(self.root)) + 1 :]].append(code.co_firstlineno)
        return functions

    def _write(self, row):
        with self.known.log.open("a") as lines:
            print(json.dumps(row), file=lines)
