"""A sample of mutants of the whole package, and what the tests make of each: `make mutants SEED=7 N=200`.

Each is one line of a file of results (JSON): killed, by which test, or survived. A run goes on where it was stopped.
A survivor is read by somebody, who mends the tests or writes beside it why nothing that anybody reads is changed.
"""

import argparse
import ast
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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.update(PYTHONDONTWRITEBYTECODE="1", OMP_NUM_THREADS="1")  # before torch

from mutants import warm
from mutants.operators import Mutant, mutants
from mutants.reached import Reached, Watch
from mutants.verdict import killer

ROOT = Path(__file__).resolve().parents[2]
LEFT = shutil.ignore_patterns(".git", ".venv*", "shared", "site", "build", "dist", "__pycache__", ".*_cache", "mutants")
# The real engines are run by `make engines`; the architecture's rules and the pages' read texts and not what they do.
WITHOUT = ("real_engines", "architecture", "mutants", "sweep")
SLOW_TO_IMPORT = ("accelerate", "fastapi", "jinja2", "optuna", "peft", "typer.testing", "uvicorn", "yaml")
UNRUN = "vllm"  # a file that imports it at its head cannot run here
PLAIN = ["-q", "-rfE", "-x", "--timeout=300", *("-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:anyio")]
PLAIN += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # what is warm was not imported by pytest
MOST = 200  # tests that are asked for by name: of more, pytest takes longer to find them than to run them
CONTROL = 600  # seconds of computing
SECONDS = (10, 20, 15, 15)  # of computing, by stages; a survivor is worth more, by hand
PATIENCE = 900  # seconds, whatever computes
MEMORY = 12 << 30
DEFINITIONS = (ast.FunctionDef, ast.ClassDef)


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


def candidates(scratch: Path, file: str) -> tuple[list[str], list[str]]:
    """Test files that may reach a file: of its room those that name it; others that do, and the rest of its room."""
    path = Path(file).relative_to("ropewalk")
    room = scratch / "tests" / path.parent
    while not any(room.rglob("test_*.py")):
        room = room.parent
    names = re.compile(rf"\b({'|'.join(_public_names(scratch / file))})\b")
    tests = _test_files(scratch)
    named = [test for test in tests if names.search(test.read_text())]
    near = sorted((test for test in named if room in test.parents), key=lambda test: path.stem not in test.stem)
    others = [test for test in named if test not in near]
    others += [test for test in tests if room in test.parents and test not in named]
    return tuple([test.relative_to(scratch).as_posix() for test in part] for part in (near, others))


def _test_files(scratch: Path) -> list[Path]:
    """The small ones first."""
    tests = scratch / "tests"
    found = (path for path in tests.rglob("test_*.py") if not {*path.relative_to(tests).parts} & {*WITHOUT})
    return sorted(found, key=lambda path: path.stat().st_size)


def _public_names(path: Path) -> list[str]:
    """The module's own name, and the functions and classes that others know it by."""
    defined = (node.name for node in ast.parse(path.read_bytes()).body if isinstance(node, DEFINITIONS))
    return [path.parent.name if path.stem == "__init__" else path.stem, *(name for name in defined if name[0] != "_")]


def enclosing(source: bytes, line: int) -> int:
    """The first line of the function around a line; 0 outside of all."""
    around = [
        node.decorator_list[0].lineno if node.decorator_list else node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef) and node.body[0].lineno <= line <= node.end_lineno
    ]
    return max(around, default=0)


class Bench:
    """A copy of the checkout, compiled once: what runs in it writes no bytecode, so none of a mutant is ever read."""

    def __init__(self, scratch: Path, log: Path) -> None:
        self.scratch, self.known = scratch, Reached(log)
        self.known.learn()
        shutil.copytree(ROOT, scratch, ignore=LEFT)
        compileall.compile_dir(scratch / "ropewalk", quiet=1)

    def judged(self, file: str, mutant: Mutant) -> dict[str, Any]:
        """What the tests make of a mutant, until one fails that passes without it."""
        began, by = time.monotonic(), ""
        for stage in self._stages(file, enclosing((self.scratch / file).read_bytes(), mutant.line)):
            while (by := self._under(file, mutant, stage)) and not self._passes_without(by):
                pass
            if by:
                break
        return {"verdict": "killed" if by else "survived", "by": by, "seconds": round(time.monotonic() - began)}

    def _stages(self, file: str, function: int) -> Iterator[tuple[list[str], int, bool]]:
        """Tests, the seconds for them, and whether only the first case of each is run."""
        near, others = candidates(self.scratch, file)
        yield self.known.by_cost(file, function)[:MOST], SECONDS[0], False
        yield near, SECONDS[1], True
        yield others, SECONDS[2], True
        reaching = dict.fromkeys(test.partition("[")[0] for test in self.known.by_cost(file, function))
        yield list(reaching)[:MOST], SECONDS[3], False

    def _under(self, file: str, mutant: Mutant, stage: tuple[list[str], int, bool]) -> str:
        """The test of a stage that fails, with the mutant in its place."""
        path = self.scratch / file
        source = path.read_bytes()
        Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)
        path.write_bytes(source[: mutant.start] + mutant.new.encode() + source[mutant.stop :])
        try:
            return self.run(*stage)
        finally:
            path.write_bytes(source)

    def _passes_without(self, killer: str) -> bool:
        """The control. What fails without a mutant too is left out from here on, or it would hide what comes after."""
        if killer in self.known.tests or not killer.startswith("tests/"):
            return True
        failed = self.run([killer], CONTROL)
        if failed:
            self.known.leave_out(failed if failed.startswith("tests/") else killer)  # of a file, only what fails
        return not failed

    def run(self, tests: list[str], seconds: int, first_cases: bool = False) -> str:
        """Run tests in a fork, in so many seconds of computing, and end all that they started. The test that failed."""
        tests = [test for test in tests if not {test, test.partition("::")[0]} & self.known.failing]
        if not tests:
            return ""
        output = self.scratch / "output"
        if (child := os.fork()) == 0:
            os.setsid()
            sys.path[:] = [place for place in sys.path if place not in ("", str(ROOT), str(ROOT / "tests"))]
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            watch = Watch(self.known, self.scratch, tests, seconds, first_cases)
            warm.tested(str(self.scratch), [*PLAIN, *sorted(tests)], str(output), watch)
        status = _ended(child, time.monotonic() + PATIENCE + 20 * seconds)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        return killer(status, output.read_text(errors="replace"), self.known.learn())


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
    parser.add_argument("--out", type=lambda name: Path(name).resolve(), required=True)
    asked = parser.parse_args()
    for name in SLOW_TO_IMPORT:
        importlib.import_module(name)
    gc.freeze()
    results = asked.out / f"{asked.seed}.jsonl"
    asked.out.mkdir(parents=True, exist_ok=True)
    results.touch()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder) / "copy", asked.out / f"{asked.seed}.reached.jsonl")
        rows = map(json.loads, results.read_text().splitlines())
        done = {(row["file"], row["start"], row["new"]) for row in rows}
        for file, mutant in drawn(asked.seed, asked.count):
            if (file, mutant.start, mutant.new) in done:
                continue
            old = (bench.scratch / file).read_bytes()[mutant.start : mutant.stop].decode()
            row = {"file": file, **mutant._asdict(), "old": old, **bench.judged(file, mutant)}
            with results.open("a") as lines:
                print(json.dumps(row), file=lines)
        report(results, bench)


if __name__ == "__main__":
    main()
