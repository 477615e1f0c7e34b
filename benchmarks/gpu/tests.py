"""The tests that run on CUDA: every backend against `ropewalk.reference_attention`, in outputs and gradients."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpu import kept_outcomes
from gpu.case import Case, OutOfTime, Place, Row, Skipped, goal

ROOT = Path(__file__).parents[2]
EVERY_BACKEND = "tests/attention/backends/test_every_backend.py"
SOME = "test_equals_the_definition and bfloat16 and 64 and not self_extend"
FILES = {
    # Some first: they show in seconds what is wrong with a backend, before it breaks the device for all others.
    "some of every backend": (EVERY_BACKEND, "-k", SOME),
    "every backend": (EVERY_BACKEND,),
    "attend": ("tests/attention/test_cuda.py",),
}
AT_ONCE = 14  # processes: most of the time kernels are compiled
RESTARTS = 200  # of processes that a kernel broke
END = 15  # seconds that are left for its end
SHOWN = 20  # failures that a record holds
REASON = 80  # letters of an error that tell it from others


def cases(place: Place) -> list[Case]:
    """A case for each file, so that a file that hangs leaves the others. A dry run reads them all at once."""
    if place.dry:
        every = sorted({path for path, *_ in FILES.values()})
        return [Case("all files", 20, functools.partial(measured, "all files", every, place))]
    return [Case(name, 20, functools.partial(measured, name, chosen, place)) for name, chosen in FILES.items()]


def measured(name: str, chosen: Sequence[str], place: Place, left: float) -> list[Row]:
    """Run the tests that pytest chooses by these arguments. A dry run only collects: the suite runs them on the CPU."""
    if importlib.util.find_spec("pytest") is None:
        raise Skipped("pytest is not installed")
    outcomes = ROOT / "build" / f"gpu_{name.replace(' ', '_')}.jsonl"  # stays, for whoever mends what failed
    outcomes.parent.mkdir(exist_ok=True)
    outcomes.unlink(missing_ok=True)
    plugins = ("no:cacheprovider", "benchmarks.gpu.older_torch", "benchmarks.gpu.kept_outcomes")
    command = [sys.executable, "-m", "pytest", *chosen, "-q", *(f"-p{plugin}" for plugin in plugins)]
    command += ["-W", "default", "-o", "addopts=--import-mode=importlib"]
    command += ["--collect-only"] if place.dry else in_parallel()
    seconds = left if place.dry else max(0.6 * left, left - END)
    complete = finish(command, seconds, {kept_outcomes.FILE: str(outcomes)})
    rows = [] if place.dry else [counted(name, outcomes)]
    if not complete:
        raise OutOfTime("the tests did not end; those that did are counted", rows)
    return rows


def in_parallel() -> list[str]:
    """Options for several processes, where pytest can have them."""
    known = importlib.util.find_spec("xdist") is not None
    processes = ["-n", str(min(AT_ONCE, os.cpu_count() or 1)), "--dist", "worksteal"]
    return [*processes, f"--max-worker-restart={RESTARTS}"] if known else []


def finish(command: list[str], seconds: float, environment: Mapping[str, str]) -> bool:
    """Run pytest, and interrupt it after some time; whether it came to its end. Failing tests are a result, anything
    else is an error."""
    environment = {**os.environ, "PYTHONPATH": path_of_tests(), **environment}
    process = subprocess.Popen(command, cwd=ROOT, env=environment)
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


def counted(name: str, outcomes: Path) -> Row:
    """How many tests passed, failed and were skipped, the first failures, and how many failed for which reason."""
    tests = list(kept_outcomes.kept(outcomes).values())
    count = Counter(test["outcome"] for test in tests)
    failed = [test for test in tests if test["outcome"] == "failed"]
    row = {"method": name, **{outcome: count[outcome] for outcome in ("passed", "failed", "skipped")}}
    row["reasons"] = dict(Counter(test["why"][:REASON] for test in failed).most_common(SHOWN))
    return {**row, "failures": [told(test) for test in failed[:SHOWN]], **goal("failed", 0)}


def told(test: Mapping[str, str]) -> str:
    """A failed test's name and its error."""
    return f"{test['test'].rpartition('::')[2]}: {test['why'][:200]}"
