"""The tests that run on CUDA: every backend against `ropewalk.reference_attention`, in outputs and gradients."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

from gpu.case import Case, OutOfTime, Place, Row, Skipped, goal

ROOT = Path(__file__).parents[2]
FILES = {
    "every backend": "tests/attention/backends/test_every_backend.py",
    "attend": "tests/attention/test_cuda.py",
    "the Triton kernels": "tests/attention/backends/triton/test_launch.py",
}
AT_ONCE = 14  # processes: most of the time kernels are compiled
END = 15  # seconds in which pytest can write its report after it was interrupted
SHOWN = 20  # failures that a record holds


def cases(place: Place) -> list[Case]:
    """A case for each file, so that a file that hangs leaves the others. A dry run reads them all at once."""
    if place.dry:
        return [Case("all files", 20, functools.partial(measured, "all files", list(FILES.values()), place))]
    return [Case(name, 20, functools.partial(measured, name, [path], place)) for name, path in FILES.items()]


def measured(name: str, paths: list[str], place: Place, left: float) -> list[Row]:
    """Run the tests of a file. A dry run only collects them: the suite runs them on the CPU."""
    if importlib.util.find_spec("pytest") is None:
        raise Skipped("pytest is not installed")
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [
            sys.executable,
            "-m",
            "pytest",
            *paths,
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "benchmarks.gpu.older_torch",
        ]
        command += ["-W", "default", "-o", "addopts=--import-mode=importlib", f"--junitxml={report}"]
        command += ["--collect-only"] if place.dry else in_parallel()
        complete = finish(command, max(0.6 * left, left - END) if len(paths) == 1 else left)
        rows = [counted(name, report)] if report.exists() and not place.dry else []
    if not complete:
        raise OutOfTime("the tests did not end; those that did are counted", rows)
    return rows


def in_parallel() -> list[str]:
    """Options for several processes, where pytest can have them."""
    known = importlib.util.find_spec("xdist") is not None
    return ["-n", str(min(AT_ONCE, os.cpu_count() or 1)), "--dist", "worksteal"] if known else []


def finish(command: list[str], seconds: float) -> bool:
    """Run pytest, and interrupt it after some time, so that it still writes its report; whether it came to its end.
    Failing tests are a result, anything else is an error."""
    process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path_of_tests()})
    try:
        status = process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END / 2)
        return False
    finally:
        process.kill()
    if status not in (0, 1):
        raise RuntimeError(f"pytest ended with status {status}, see the log")
    return True


def path_of_tests() -> str:
    """The path without this folder's parent, whose files have names that folders of tests have."""
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    return os.pathsep.join([str(ROOT), *(path for path in paths if Path(path) != ROOT / "benchmarks")])


def counted(name: str, report: Path) -> Row:
    """How many tests passed, failed and were skipped, and the first failures."""
    tests = list(ElementTree.parse(report).iter("testcase"))
    failed = [test for test in tests if test.find("failure") is not None or test.find("error") is not None]
    skipped = sum(test.find("skipped") is not None for test in tests)
    row = {"method": name, "passed": len(tests) - len(failed) - skipped, "failed": len(failed), "skipped": skipped}
    return {**row, "failures": [told(test) for test in failed[:SHOWN]], **goal("failed", 0)}


def told(test: ElementTree.Element) -> str:
    """A failed test's name and its first line."""
    problem = next(part for part in (test.find("failure"), test.find("error")) if part is not None)
    return f"{test.get('name')}: {(problem.get('message') or '')[:200]}"
