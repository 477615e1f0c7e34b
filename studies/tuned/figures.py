"""The measurements of the tuning table: by method, steps, seed and length; and sums of losses with intervals."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ropewalk.measure.metrics.intervals import Estimate, crossed_mean, mean

LONGEST = 8  # trained lengths: of the longest text, unless a table says another
FIFTH, ALL = "fifth", "all"  # of the steps; "" is none
FEW = 5  # the smaller budget is the larger one over this


class LossTerm(NamedTuple):
    """A loss in a sum: of a method after a budget, at a multiple of the trained length."""

    weight: float
    method: str
    budget: str = ""
    times: int = LONGEST

    def __str__(self) -> str:
        """Without its weight."""
        trained = {"": "not trained", FIFTH: "a fifth of the steps", ALL: "all steps"}[self.budget]
        return f"{self.method} ({trained}) at {self.times}x"


class SpikeTerm(NamedTuple):
    """How far the largest logged gradient of a training is above the median, in a sum: of a method, with all steps."""

    weight: float
    method: str

    def __str__(self) -> str:
        """Without its weight."""
        return f"log10 of the largest logged norm of {self.method}'s gradients over their median"


class TunedFigures:
    """The measurements, by method, steps, seed and length."""

    def __init__(self, results: Mapping[str, Any]) -> None:
        self._of = {
            (model["method"], model["steps"], model["seed"], row["times"]): _with_losses(row)
            for model in results["models"]
            for row in model["figures"]
        }
        self._gradients = {
            (model["method"], model["steps"], model["seed"]): model["training"]["grad_norm"]
            for model in results["models"]
            if any(model.get("training", {}).get("grad_norm", ()))
        }
        self._projects = results.get("projects") or None  # of the texts; where they are not known, each text is one
        self.methods = list(dict.fromkeys(model["method"] for model in results["models"]))
        self.budgets = sorted({model["steps"] for model in results["models"]})
        self.times = sorted({times for *_, times in self._of})
        self._steps = {"": 0, FIFTH: max(1, results["plan"]["steps"] // FEW), ALL: results["plan"]["steps"]}

    def seeds(self, method: str, steps: int) -> list[int]:
        """Seeds that are measured."""
        return sorted({seed for name, count, seed, _ in self._of if (name, count) == (method, steps)})

    def rows(self, method: str, steps: int, times: int) -> list[Mapping[str, Any]]:
        """What was measured at one length, for every seed."""
        return [self._of[method, steps, seed, times] for seed in self.seeds(method, steps)]

    def sum(self, terms: Sequence[LossTerm], level: float = 0.95, *, least: float = -math.inf) -> Estimate | None:
        """A sum of losses, with its interval over texts, by project, and over the seeds that all have; None without.

        What is not trained is the same for every seed.
        """
        steps = [self._steps[term.budget] for term in terms]
        sets = [set(self.seeds(term.method, count)) for term, count in zip(terms, steps, strict=True)]
        trained = [seeds for seeds, count in zip(sets, steps, strict=True) if count]
        seeds = sorted(set.intersection(*(trained or sets)))
        if not seeds or not all(sets):
            return None
        of_seeds = [list(self._of_texts(terms, seed)) for seed in seeds]
        return crossed_mean(of_seeds, groups=self._projects, least=least, level=level)

    def spikes(self, terms: Sequence[SpikeTerm], level: float = 0.95) -> Estimate | None:
        """A sum of what gradients do, with its interval over the seeds that all have; None without."""
        steps, sums = self._steps[ALL], []
        for seed in sorted(set.intersection(*(set(self.seeds(term.method, steps)) for term in terms))):
            keys = [(term.method, steps, seed) for term in terms]
            if all(key in self._gradients for key in keys):
                spikes = [_spike(self._gradients[key]) for key in keys]
                sums.append(math.fsum(term.weight * one for term, one in zip(terms, spikes, strict=True)))
        return mean(sums, level=level) if sums else None

    def trainings(self, sums: Sequence[Sequence[LossTerm]]) -> int:
        """The fewest seeds that a method of the sums was trained with; 0 where none was trained."""
        counts = [len(self.seeds(one.method, self._steps[one.budget])) for terms in sums for one in terms if one.budget]
        return min(counts, default=0)

    def single(self, terms: Sequence[LossTerm]) -> bool:
        """Whether the sum is of models that were trained with one seed only."""
        trained = [self.seeds(term.method, self._steps[term.budget]) for term in terms if term.budget]
        return bool(trained) and len(set.intersection(*map(set, trained))) == 1

    def curve(self, method: str, budget: str) -> list[tuple[float, Estimate]]:
        """The loss at every length where it is finite, with its interval."""
        points = [(times, self.sum([LossTerm(1, method, budget, times)], least=0)) for times in self.times]
        return [(times, one) for times, one in points if one is not None and math.isfinite(one.value)]

    def label(self, method: str, budget: str) -> str:
        """A method and its budget, in words."""
        steps = self._steps[budget]
        return f"{method} after {steps:,} steps" if steps else f"{method}, not trained"

    def _of_texts(self, terms: Sequence[LossTerm], seed: int) -> Iterator[float]:
        """The sum for each text."""
        losses = []
        for term in terms:
            count = self._steps[term.budget]
            chosen = seed if count else self.seeds(term.method, 0)[0]
            row = self._of[term.method, count, chosen, term.times]
            losses.append([term.weight * loss for loss in row["losses"]])
        return map(math.fsum, zip(*losses, strict=True))


def _spike(norms: Sequence[float]) -> float:
    return math.log10(max(norms) / statistics.median(norms))


def _with_losses(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """A row as it was before it was JSON, which has no NaN and no infinity."""
    return {**row, "losses": [math.nan if loss is None else loss for loss in row["losses"]]}
