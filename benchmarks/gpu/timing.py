"""Times on a GPU: every candidate in every round, between CUDA events, after two calls that are not counted.

The first call holds what is compiled, and is given apart. The second shows the memory beyond what was there before.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch

from gpu.case import Place, Row
from rounds import by_events, ratios

FEWEST, MOST = 3, 12  # rounds
FATAL = ("AcceleratorError", "CUDA error", "illegal memory access", "misaligned address", "launch failure")


class Warmth(NamedTuple):
    """What the calls before the rounds showed."""

    first_call_s: float
    peak_mib: float | None


def settled() -> None:
    """torch's settings while figures are taken: no tf32, no search for algorithms, the default order of gradients."""
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("highest")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = False
    torch.use_deterministic_algorithms(False)
    torch.utils.deterministic.fill_uninitialized_memory = False  # where the order is fixed, nothing else changes


def synchronize(place: Place) -> None:
    """Wait for the device; an error of a kernel is raised here."""
    if place.device == "cuda":
        torch.cuda.synchronize()


def cleared(place: Place) -> None:
    """Give memory back between cases."""
    gc.collect()
    if place.device == "cuda":
        torch.cuda.empty_cache()


def seconds_of(run: Callable[[], object], place: Place) -> float:
    """Seconds of one call."""
    if place.device == "cuda":
        return by_events(run)
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def is_fatal(error: BaseException) -> bool:
    """Whether an error of a kernel has left the process without a usable device."""
    return not isinstance(error, torch.OutOfMemoryError) and any(sign in told(error) for sign in FATAL)


def compared(
    candidates: Mapping[str, Callable[[], object]],
    baseline: str,
    place: Place,
    *,
    seconds: float,
    calls: int = 1,
) -> dict[str, Row]:
    """The figures of every candidate against the baseline; what cannot run has its reason instead.

    `calls` is how often a candidate is called between two events, where one call is too short to be timed.
    """
    rows: dict[str, Row] = {}
    warm: dict[str, Warmth] = {}
    for name, run in candidates.items():
        try:
            warm[name] = _warmed(run, place)
        except Exception as error:
            if name == baseline or is_fatal(error):
                raise
            rows[name] = {"why": told(error)}
            cleared(place)
    times = _rounds({name: candidates[name] for name in warm}, place, seconds, calls)
    figures = ratios(times, baseline)
    for name, (first_call_s, peak) in warm.items():
        memory = {} if peak is None else {"peak MiB": round(peak, 1)}
        rows[name] = {**figures[name], "first call s": round(first_call_s, 2), **memory}
        rows[name]["milliseconds"] = round(min(times[name]) * 1e3, 3)
    return rows


def told(error: BaseException) -> str:
    """An error in one line."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:300]}"


def _warmed(run: Callable[[], object], place: Place) -> Warmth:
    synchronize(place)
    began = time.perf_counter()
    run()
    synchronize(place)
    first = time.perf_counter() - began
    if place.device != "cuda":
        run()
        return Warmth(first, None)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    run()
    torch.cuda.synchronize()
    return Warmth(first, (torch.cuda.max_memory_allocated() - before) / 2**20)


def _rounds(
    candidates: Mapping[str, Callable[[], object]], place: Place, seconds: float, calls: int
) -> dict[str, list[float]]:
    """Seconds of a call in every round, as many rounds as there is time for."""
    times: dict[str, list[float]] = {name: [] for name in candidates}
    began, count, most = time.perf_counter(), 0, place.either(MOST, 1)
    # At least three rounds, unless one takes longer than all should.
    while count == 0 or (count < most and time.perf_counter() - began < seconds * (2 if count < FEWEST else 1)):
        for name, run in candidates.items():
            repeated = run if calls == 1 else _several(run, calls)
            times[name].append(seconds_of(repeated, place) / calls)
        count += 1
    return times


def _several(run: Callable[[], object], calls: int) -> Callable[[], object]:
    def several() -> None:
        for _ in range(calls):
            run()

    return several
