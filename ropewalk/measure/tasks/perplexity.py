"""Perplexity by three definitions at each length, bits per byte, and the position where a model breaks down.

    truncated(L), strided(L, L/2), rolling(L)     on passages of the longest length: measure/metrics/perplexity.py
    breakdown                                     where the loss in the longest texts leaves its normal level

The normal level of a token is its loss under the base model in windows of the trained length, so that a difficult part
of a text is not taken for a breakdown.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from ropewalk.measure.material.subject import Subject
from ropewalk.measure.metrics.intervals import Estimate, mean, outside, projects_of, too_few_projects
from ropewalk.measure.metrics.losses import bin_means, bits_per_byte, edges, text_bytes
from ropewalk.measure.metrics.perplexity import breakdown, perplexity_of_loss, strided_losses
from ropewalk.measure.tasks.task import Task
from ropewalk.methods.spec import Json

DEFINITIONS = ("truncated", "strided", "rolling")
BREAKDOWN_RESAMPLES = 400
BREAKDOWN_BINS = 4  # consecutive bins of 64 that a breakdown must fill, so that it is not noise


@dataclass(frozen=True, kw_only=True)
class Perplexity(Task):
    name: ClassVar[str] = "perplexity"
    headline: ClassVar[str] = "strided"

    def measure(self, subject: Subject, length: int, sample: int) -> Json:
        """One passage; losses in nats per token."""
        text = subject.passages(self.samples)[sample].to(subject.device)
        window = min(length, len(text) - 1)
        read = partial(strided_losses, subject.model, text, window=window, begin=subject.begin)
        strided, rolling = (read(stride=stride) for stride in (max(1, window // 2), window))
        size = text_bytes(subject.tokenizer, text[1:])
        by_name = {"truncated": rolling[: length - 1 - len(subject.begin)], "strided": strided, "rolling": rolling}
        result: Json = {name: float(losses.double().mean()) for name, losses in by_name.items()}
        result["project"] = subject.projects(self.samples)[sample]
        result |= {"bits_per_byte": bits_per_byte(strided, size), "bytes": size}
        if length == subject.longest:
            result |= _excess(subject, text, rolling)
        return result

    def condense(self, results: Sequence[Json]) -> dict[str, Estimate]:
        """Passages have one length, so means over texts and over tokens agree; bits per byte are weighted by bytes."""
        groups = projects_of(results)
        numbers = {
            name: perplexity_of_loss(mean([one[name] for one in results], groups=groups)) for name in DEFINITIONS
        }
        bits, weights = ([result[name] for result in results] for name in ("bits_per_byte", "bytes"))
        numbers["bits_per_byte"] = mean(bits, weights, groups=groups)
        place = _breakdown(results) if "excess" in results[0] else None
        return numbers | ({"breakdown": place} if place else {})


def _excess(subject: Subject, text: Tensor, losses: Tensor) -> Json:
    """By how much losses are above the normal level, in bins; and where the bins end."""
    trained = min(subject.facts.trained_len, len(losses))
    with subject.as_trained():
        level = strided_losses(subject.model, text, window=trained, stride=max(1, trained // 2), begin=subject.begin)
    return {"excess": bin_means(losses - level), "ends": edges(len(losses))[1:]}


def _breakdown(results: Sequence[Json]) -> Estimate | None:
    """The breakdown of the mean over passages, with a bootstrap over them; None if there is none."""
    excess = torch.tensor([result["excess"] for result in results], dtype=torch.float64)
    ends = results[0]["ends"]

    def place(rows: Tensor) -> float:
        bin_ = breakdown(rows.mean(0), width=min(BREAKDOWN_BINS, len(ends)))
        return math.inf if bin_ is None else float(ends[bin_])

    drawn = torch.randint(len(excess), (BREAKDOWN_RESAMPLES, len(excess)), generator=torch.Generator().manual_seed(0))
    spread = sorted(place(excess[rows]) for rows in drawn)
    value, count = place(excess), len(excess)
    if math.isinf(value):
        return None
    if count == 1 or too_few_projects(projects_of(results)):
        return Estimate(value, 0.0, math.inf, count)
    beyond = outside(BREAKDOWN_RESAMPLES, count)
    return Estimate(value, spread[beyond], spread[-1 - beyond], count)
