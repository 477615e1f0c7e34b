"""Runs the steps, each in a process of its own, within a limit of time, and keeps what each case reports.

A step that dies, hangs or fails costs no more than its share; what it does not use goes to the steps after it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from gpu.case import STEPS, Place
from gpu.record import ROOT, Results

WORKER = (sys.executable, "-m", "gpu", "--work")
GRACE = 8.0  # seconds beyond a share, in which a process may end by itself
LOG = "gpu.log"
OUT_OF_TIME = "out of time"


class Run:
    """One call of the command."""

    def __init__(self, results: Results, place: Place, *, again: bool = False, worker: Sequence[str] = WORKER) -> None:
        self.results, self.place, self.again, self.worker = results, place, again, worker
        self.log = (results.out or ROOT / "build") / LOG

    def steps(self, names: Sequence[str], seconds: float) -> bool:
        """Run the steps; whether every case has been measured, or cannot be here. A dry run has one process for all."""
        end, spare, complete = time.monotonic() + seconds, 0.0, True
        for group in [list(names)] if self.place.dry else [[name] for name in names]:
            began = time.monotonic()
            share = max(0.0, min(sum(STEPS[name].seconds for name in group) + spare, end - began))
            complete &= self.group(group, share)
            spare = max(0.0, share - (time.monotonic() - began))
        return complete

    def group(self, names: Sequence[str], seconds: float) -> bool:
        """Run the cases that have no result yet. A process that died is started again for those that are left."""
        done = {name: set() if self.again else self.results.final(name) for name in names}
        for name in names:
            print(f"{name}: {len(done[name])} cases were measured before" if done[name] else name, flush=True)
        end, attempt = time.monotonic() + seconds, Attempt(done)
        while not attempt.finished and time.monotonic() < end:
            self._process(names, end - time.monotonic(), attempt)
        for name, case in attempt.missing():
            self._keep(name, {"case": case, "status": OUT_OF_TIME, "why": "the share of the time was used"}, attempt)
        return not attempt.statuses & {"failed", OUT_OF_TIME} and attempt.finished

    def _process(self, names: Sequence[str], seconds: float, attempt: Attempt) -> None:
        """One process, until it ends or its time is up."""
        done = {name: sorted(cases) for name, cases in attempt.done.items()}
        orders = json.dumps({"steps": list(names), "done": done, "seconds": seconds, **self.place._asdict()})
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with (
            self.log.open("a") as log,
            _started(self.worker, log, self.place) as process,
            _ending(process, seconds + GRACE) as stopped,
        ):
            self._listen(process, orders, attempt)
        why = f"stopped after {seconds:.0f} s" if stopped.is_set() else f"its process ended: {_last_line(self.log)}"
        attempt.finished = process.returncode == 0
        if process.returncode and attempt.at:
            self._keep(*attempt.lost(OUT_OF_TIME if stopped.is_set() else "failed", why), attempt)
        elif process.returncode and not attempt.reported:  # it did not come to its first case
            attempt.finished = True
            self._keep(names[0], {"case": "start", "status": "failed", "why": why}, attempt)

    def _listen(self, process: subprocess.Popen[str], orders: str, attempt: Attempt) -> None:
        """Keep every result as it comes."""
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(orders)
            process.stdin.close()
        for line in process.stdout:
            event = json.loads(line)
            if "cases" in event:
                attempt.cases[event["step"]] = event["cases"]
            elif "begun" in event:
                attempt.at = (event["step"], event["begun"], time.monotonic())
            else:
                self._keep(event["step"], event, attempt)
        process.wait()

    def _keep(self, step: str, event: dict[str, Any], attempt: Attempt) -> None:
        attempt.settle(step, event["case"], event["status"])
        seconds, why = event.get("seconds", 0.0), event.get("why", "")
        self.results.append(step, event["case"], event["status"], seconds, why=why, rows=event.get("rows", []))
        print(
            f"  {seconds:6.1f} s  {event['status']:<11} {step}: {event['case']}" + (f": {why}" if why else ""),
            flush=True,
        )


class Attempt:
    """Where a call is: what is done, what has a result in this call, and which case is running."""

    def __init__(self, done: dict[str, set[str]]) -> None:
        self.done = done
        self.cases: dict[str, list[str]] = {}
        self.reported = 0
        self.statuses: set[str] = set()
        self.at: tuple[str, str, float] | None = None
        self.finished = False

    def settle(self, step: str, case: str, status: str) -> None:
        """A case has a result, and is not begun again in this call."""
        self.done.setdefault(step, set()).add(case)
        self.statuses.add(status)
        self.reported += 1
        self.at = None

    def lost(self, status: str, why: str) -> tuple[str, dict[str, Any]]:
        """The case at which a process ended."""
        assert self.at is not None
        step, case, since = self.at
        return step, {"case": case, "status": status, "why": why, "seconds": time.monotonic() - since}

    def missing(self) -> list[tuple[str, str]]:
        """The cases without a result."""
        return [(step, case) for step, cases in self.cases.items() for case in cases if case not in self.done[step]]


def _started(command: Sequence[str], log: IO[str], place: Place) -> subprocess.Popen[str]:
    """A process in a group of its own, so that what it started ends with it."""
    benchmarks = Path(__file__).parents[1]
    paths = [str(benchmarks), str(benchmarks.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "HF_HUB_OFFLINE": "1"}
    if place.dry:
        environment |= {"CUDA_VISIBLE_DEVICES": ""}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": log}
    return subprocess.Popen(command, env=environment, text=True, start_new_session=True, **pipes)


@contextlib.contextmanager
def _ending(process: subprocess.Popen[str], seconds: float) -> Iterator[threading.Event]:
    """End a process and everything in its group after some time, and in any case at the end; whether it was stopped."""
    stopped = threading.Event()

    def stop() -> None:
        stopped.set()
        _end(process)

    timer = threading.Timer(seconds, stop)
    timer.start()
    try:
        yield stopped
    finally:
        timer.cancel()
        _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _last_line(log: Path) -> str:
    """What a process said last."""
    lines = log.read_text(errors="replace").strip().splitlines()
    return f"{lines[-1][:300]} ({LOG})" if lines else LOG
