"""A sample of mutants of the whole package, and what the tests make of each: `make mutants SEED=7 N=200`.

First every test runs, in its first case, to know which functions it reaches; then a mutant meets the tests that reach
its function, and then all their cases. Each is one line of a file of results (JSON): killed, by which test, or
survived. A run goes on where it was stopped.
A survivor is read by somebody, who mends the tests or writes beside it why nothing that anybody reads is changed.
"""

import argparse
import collections
import compileall
import contextlib
import gc
import importlib.util
import json
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

os.environ.update(PYTHONDONTWRITEBYTECODE="1", OMP_NUM_THREADS="1")  # before torch

from mutants import warm
from mutants.operators import Mutant, enclosing, mutants
from mutants.reached import Reached, Watch
from mutants.verdict import killer

ROOT = Path(__file__).resolve().parents[2]
LEFT = shutil.ignore_patterns(".git", ".venv*", "shared", "site", "build", "dist", "__pycache__", ".*_cache", "mutants")
# The real engines are run by `make engines`; the architecture's rules and the pages' read texts and not what they do.
WITHOUT = ("real_engines", "architecture", "mutants", "sweep")
SLOW_TO_IMPORT = ("accelerate", "fastapi", "jinja2", "optuna", "peft", "typer.testing", "uvicorn", "yaml")
UNRUN = "vllm"  # a file that imports it at its head cannot run here
PLAIN = ["-q", "-rfE", "--timeout=300", *("-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:anyio")]
PLAIN += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # what is warm was not imported by pytest
MOST = 200  # tests that are asked for by name at once: of more, pytest takes longer to find them than to run them
SECONDS = 40  # of computing; twice as many where all cases of the tests are run
LEARNING = 3600  # seconds of computing, at most
PATIENCE = 900  # seconds, whatever computes
MEMORY = 12 << 30


def drawn(seed: int, count: int) -> list[tuple[str, Mutant]]:
    """Mutants by chance: lines, evenly over all that have one; an operator of each line; one of its edits."""
    by_line: dict[tuple[str, int], dict[str, list[Mutant]]] = {}
    for path in sorted((ROOT / "ropewalk").rglob("*.py")):
        source = path.read_bytes()
        if not re.search(rf"^(from|import) {UNRUN}".encode(), source, flags=re.MULTILINE):
            for mutant in mutants(source):
                of_line = by_line.setdefault((path.relative_to(ROOT).as_posix(), mutant.line), {})
                of_line.setdefault(mutant.operator, []).append(mutant)
    chance = random.Random(seed)
    lines = [(place[0], by_line[place]) for place in chance.sample(sorted(by_line), count)]
    return [(file, chance.choice(operators[chance.choice(sorted(operators))])) for file, operators in lines]


class Bench:
    """A copy of the checkout, compiled once: what runs in it writes no bytecode, so none of a mutant is ever read."""

    def __init__(self, scratch: Path, log: Path) -> None:
        self.scratch, self.known = scratch, Reached(log)
        shutil.copytree(ROOT, scratch, ignore=LEFT)
        compileall.compile_dir(scratch / "ropewalk", quiet=1)

    def learn(self, part: int, parts: int) -> None:
        """What the tests of a part of the files reach, unless it is known."""
        self.known.learn()
        tests = self.scratch / "tests"
        found = sorted(path for path in tests.rglob("test_*.py") if not {*path.relative_to(tests).parts} & {*WITHOUT})
        files = [path.relative_to(self.scratch).as_posix() for path in found][part::parts]
        while hung := self._forked(files, LEARNING, learns=True)[2]:
            self.known.leave_out(hung)

    def judge(self, sample: list[tuple[str, Mutant]], results: Path) -> None:
        """Mutants that are not in the results yet."""
        self.known.learn()
        rows = map(json.loads, results.read_text().splitlines())
        done = {(row["file"], row["start"], row["new"]) for row in rows}
        for file, mutant in sample:
            if (file, mutant.start, mutant.new) not in done:
                old = (self.scratch / file).read_bytes()[mutant.start : mutant.stop].decode()
                row = {"file": file, **mutant._asdict(), "old": old, **self.judged(file, mutant)}
                with results.open("a") as lines:
                    lines.write(json.dumps(row) + "\n")

    def judged(self, file: str, mutant: Mutant) -> dict[str, Any]:
        """What the tests make of a mutant, until one fails."""
        began, by = time.monotonic(), ""
        tests = self.known.of(file, enclosing((self.scratch / file).read_bytes(), mutant.line))
        in_all_cases = list(dict.fromkeys(test.partition("[")[0] for test in tests))[:MOST]
        for some, seconds in ((tests[:MOST], SECONDS), (tests[MOST : 2 * MOST], SECONDS), (in_all_cases, 2 * SECONDS)):
            if by := self._under(file, mutant, some, seconds):
                break
        return {"verdict": "killed" if by else "survived", "by": by, "seconds": round(time.monotonic() - began)}

    def _under(self, file: str, mutant: Mutant, tests: list[str], seconds: int) -> str:
        """The test that fails with the mutant in its place."""
        path = self.scratch / file
        source = path.read_bytes()
        Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)
        path.write_bytes(source[: mutant.start] + mutant.new.encode() + source[mutant.stop :])
        try:
            return self.run(tests, seconds)
        finally:
            path.write_bytes(source)

    def run(self, tests: list[str], seconds: int) -> str:
        """The test that fails, of those that can be run in so many seconds of computing."""
        return killer(*self._forked(["-x", *tests], seconds, learns=False)) if tests else ""

    def _forked(self, arguments: list[str], seconds: int, *, learns: bool) -> tuple[int, str, str]:
        """Run tests in a fork, and end all that they started: its status, what it said, and the test that hung."""
        output = self.scratch / "output"
        if (child := os.fork()) == 0:
            os.setsid()
            sys.path[:] = [place for place in sys.path if place not in ("", str(ROOT), str(ROOT / "tests"))]
            if not learns:
                resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            watch = Watch(self.known, self.scratch, arguments, seconds, learns)
            warm.tested(str(self.scratch), [*PLAIN, *arguments], str(output), watch)
        status = _ended(child, time.monotonic() + PATIENCE + 20 * seconds)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        return status, output.read_text(errors="replace"), self.known.learn(child)


def _ended(child: int, latest: float) -> int:
    """How a fork ended, which is killed if it never does."""
    while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0):
        if time.monotonic() > latest:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.02)
    return os.waitstatus_to_exitcode(ended[1])


def report(results: Path, bench: Bench) -> None:
    """How many survived. What killed the others must pass on the unchanged package, or it shows nothing."""
    rows = [json.loads(line) for line in results.read_text().splitlines()]
    killers = sorted({row["by"] for row in rows if row["by"].startswith("tests/")})
    wrong = set()
    while failed := bench.run([test for test in killers if test not in wrong], 3600):
        wrong.add(failed)
    for row in rows:
        if row["by"] in wrong or not row["by"].startswith("tests/"):
            print(f"{row['file']}:{row['line']} {row['operator']}: {row['old']} -> {row['new']}  {row['by']}")
    counts = collections.Counter("undecided" if row["by"] in wrong else row["verdict"] for row in rows)
    print(f"{dict(counts)} of {len(rows)}; tests that fail without a mutant: {sorted(wrong)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=lambda name: Path(name).resolve(), required=True)
    asked = parser.parse_args()
    for name in SLOW_TO_IMPORT:
        importlib.import_module(name)
    gc.freeze()
    results = asked.out / f"{asked.seed}.jsonl"
    asked.out.mkdir(parents=True, exist_ok=True)
    results.touch()
    with tempfile.TemporaryDirectory() as folder:
        log = asked.out / f"{asked.seed}.reached.jsonl"
        benches = [Bench(Path(folder) / f"copy{n}", log) for n in range(asked.processes)]
        _in_parallel([partial(bench.learn, n, len(benches)) for n, bench in enumerate(benches)])
        sample = drawn(asked.seed, asked.count)
        _in_parallel([partial(bench.judge, sample[n :: len(benches)], results) for n, bench in enumerate(benches)])
        report(results, benches[0])


def _in_parallel(tasks: list[Callable[[], None]]) -> None:
    """Each in a fork."""
    children = []
    for task in tasks:
        if (child := os.fork()) == 0:
            task()
            os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
