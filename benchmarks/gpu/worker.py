"""The process that measures: it runs cases and reports each as a line of JSON. If it dies, the figures so far are safe.

Lines go to what was standard output; whatever libraries print goes to standard error, which is the log.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpu.case import STEPS, Case, OutOfTime, Place, Skipped

Report = Callable[..., None]
CLEAN, BROKEN = 0, 75  # BROKEN: this process can no longer use the device


def work(steps: Sequence[str], done: Mapping[str, Sequence[str]], place: Place, seconds: float) -> int:
    """Run the cases of these steps that are not done."""
    import torch

    from gpu import older_torch, timing

    end, report = time.monotonic() + seconds, _reporter()
    timing.settled()
    older_torch.adapt()
    if place.dry:
        torch.set_num_threads(1)
    for step in steps:
        cases = STEPS[step].cases(place)
        report(step=step, cases=[case.name for case in cases])
        for case in cases:
            if case.name not in done.get(step, ()) and not _carried_out(step, case, end, place, report):
                return BROKEN
            timing.cleared(place)
    return CLEAN


def _carried_out(step: str, case: Case, end: float, place: Place, report: Report) -> bool:
    """Run one case if there is time for it; whether the device can still be used."""
    left = end - time.monotonic()
    if left >= case.seconds or place.dry:
        return _run(step, case, left, report)
    why = f"it takes about {case.seconds:.0f} s, and {max(left, 0):.0f} s of the step's share were left"
    report(step=step, case=case.name, status="out of time", why=why, seconds=0.0)
    return True


def _run(step: str, case: Case, left: float, report: Report) -> bool:
    """Run one case; whether the device can still be used."""
    import torch

    from gpu.timing import is_fatal, told

    report(step=step, begun=case.name)
    began, error = time.monotonic(), None
    outcome: dict[str, Any] = {}
    try:
        outcome = {"status": "measured", "rows": case.run(left)}
    except Skipped as skipped:
        outcome = {"status": "skipped", "why": str(skipped)}
    except OutOfTime as stopped:
        outcome = {"status": "out of time", "why": str(stopped), "rows": stopped.rows}
    except torch.OutOfMemoryError as out_of_memory:
        outcome = {"status": "failed", "why": f"out of memory: {told(out_of_memory)}"}
    except Exception as raised:
        import traceback

        traceback.print_exc()
        error, outcome = raised, {"status": "failed", "why": told(raised)}
    report(step=step, case=case.name, **outcome, seconds=time.monotonic() - began)
    return error is None or not is_fatal(error)


def _reporter() -> Report:
    """A function that writes a line to standard output, which nothing else can write to from now on."""
    lines = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def report(**event: Any) -> None:
        lines.write(json.dumps(event) + "\n")
        lines.flush()

    return report
