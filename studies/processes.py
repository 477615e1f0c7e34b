"""Ratios of times that were measured in several processes: they agree within a process and differ between them."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from ropewalk.evaluation.metrics.intervals import Estimate, mean


def ratio(runs: Sequence[Mapping[str, Sequence[float]]], above: str, below: str) -> Estimate:
    """One candidate's time over another's: the mean over processes of the median over rounds."""
    of_rounds = [[a / b for a, b in zip(run[above], run[below], strict=True)] for run in runs]
    return mean([statistics.median(one) for one in of_rounds])
