"""Reliable ratios: all candidates in every round, in one process, by process CPU time, on one thread.

A machine's speed drifts between runs but hardly within one, so a figure is a ratio to a candidate of the same run.
"""

from __future__ import annotations

import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import torch

RESULTS = Path(__file__).parent / "results"


def by_process(run: Callable[[], object]) -> float:
    """Seconds of CPU time of the process."""
    before = time.process_time()
    run()
    return time.process_time() - before


def by_events(run: Callable[[], object]) -> float:
    """Seconds from the first to the last work on the GPU, including the time that it waits for the CPU."""
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    run()
    last.record()
    last.synchronize()
    return float(first.elapsed_time(last)) / 1e3


def rounds(
    candidates: Mapping[str, Callable[[], object]],
    count: int,
    seconds: Callable[[Callable[[], object]], float] = by_process,
) -> dict[str, list[float]]:
    """Seconds of every candidate in every round, after one round that is not counted."""
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for number in range(count + 1):
        for name, run in candidates.items():
            elapsed = seconds(run)
            if number:
                times[name].append(elapsed)
    return times


def ratios(times: Mapping[str, list[float]], baseline: str) -> dict[str, dict[str, float]]:
    """Every candidate against the baseline: best against best, and the median of the ratios round by round."""
    base = times[baseline]
    return {
        name: {
            "best": round(min(elapsed) / min(base), 3),
            "median": round(statistics.median(one / other for one, other in zip(elapsed, base, strict=True)), 3),
            "milliseconds": round(min(elapsed) * 1e3, 1),
        }
        for name, elapsed in times.items()
    }


def append(theme: str, rows: list[dict[str, Any]], device: str = "") -> Path:
    """Add a run to the theme's file: results are never edited. `device` names a GPU."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{theme}.jsonl"
    run = {
        "date": date.today().isoformat(),
        "command": " ".join(["python", *sys.argv]),
        **machine(device),
        "rows": rows,
    }
    with path.open("a") as file:
        file.write(json.dumps(run) + "\n")
    return path


def machine(device: str = "") -> dict[str, Any]:
    """The machine and versions of the figures."""
    count = torch.get_num_threads()
    processor = f"{torch.backends.cpu.get_cpu_capability()}, {'one thread' if count == 1 else f'{count} threads'}"
    return {
        "machine": f"{platform.machine()}, {device or processor}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "commit": commit(),
    }


def commit() -> str:
    """The commit of the code; empty where there is no git or no repository."""
    try:
        command = ["git", "describe", "--always", "--dirty"]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""
