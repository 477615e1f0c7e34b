"""Times that are measured in several processes: their ratios agree within a process and differ between them."""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ropewalk.measure.metrics.intervals import Estimate, mean

from benchmarks.rounds import ratios
from studies.claims import EstimateOf

Seconds = dict[str, list[float]]  # of every round, by candidate


def asked_for_quick(name: str, doc: str, arguments: Sequence[str] | None = None) -> bool:
    """Whether the command line of a study of times has --quick; --help shows what the study does."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog=f"python -m {name}", description=doc, formatter_class=form)
    parser.add_argument("--quick", action="store_true", help="two processes on short texts, in a minute; keep nothing")
    return bool(parser.parse_args(arguments).quick)


def one_by_one(measured: Callable[[bool], Seconds], count: int, quick: bool) -> list[Seconds]:
    """What each of so many new processes measures, one after the other."""
    torch.set_num_threads(1)  # also on record
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        return pool.map(measured, [quick] * count, chunksize=1)


def printed_ratios(runs: Sequence[Seconds], baseline: str) -> list[dict[str, Any]]:
    """Every candidate against the baseline, over the rounds of all processes; each is printed."""
    seconds = {name: [second for run in runs for second in run[name]] for name in runs[0]}
    rows = [{"case": name, **row} for name, row in ratios(seconds, baseline).items()]
    for row in rows:
        print(row)
    return rows


def ratio(runs: Sequence[Mapping[str, Sequence[float]]], above: str, below: str, level: float = 0.95) -> Estimate:
    """One candidate's time over another's: the mean over processes of the median over rounds."""
    of_rounds = [[a / b for a, b in zip(run[above], run[below], strict=True)] for run in runs]
    return mean([statistics.median(one) for one in of_rounds], level=level)


def times(runs: Sequence[Mapping[str, Sequence[float]]], above: str, below: str) -> EstimateOf:
    """The same, as the only figure that a claim compares."""
    return lambda terms, level: ratio(runs, above, below, level)


def processes_of(runs: Sequence[Any]) -> str:
    """What the times are of."""
    return f"{len(runs)} processes of one machine"
