"""Ratios of times that were measured in several processes: they agree within a process and differ between them. And the
claims that follow from them."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ropewalk.evaluation.metrics.intervals import Estimate, mean
from ropewalk.lab.claims import JudgedClaim


def ratio(runs: Sequence[Mapping[str, Sequence[float]]], above: str, below: str) -> Estimate:
    """One candidate's time over another's: the mean over processes of the median over rounds."""
    of_rounds = [[a / b for a, b in zip(run[above], run[below], strict=True)] for run in runs]
    return mean([statistics.median(one) for one in of_rounds])


def store(records: Path, kept: Mapping[str, Any], judged: Sequence[JudgedClaim]) -> None:
    """The claims, with what they follow from."""
    records.parent.mkdir(exist_ok=True)
    records.write_text(json.dumps({**kept, "claims": [one.record for one in judged]}, indent=1) + "\n", "utf-8")
