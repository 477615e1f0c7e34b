"""The zoo's measurements: by method, seed, kind of text and length; and sums of them with intervals."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ropewalk.measure.metrics.intervals import Estimate, crossed_mean

ACCURACY, LOSS, OF_TEXTS = "accuracy", "loss", "accuracy_of_texts"
PLAIN, REPEATED, FAR = KINDS = ("non-repeated", "repeated", "repeated from afar")


class AccuracyTerm(NamedTuple):
    """An accuracy in a sum."""

    weight: float
    method: str
    times: int
    kind: str = PLAIN

    def __str__(self) -> str:
        """Without its weight."""
        of = {PLAIN: "", REPEATED: " of repeated text", FAR: " of text repeated from afar"}
        return f"{self.method} at {self.times}x" + of[self.kind]


class ZooFigures:
    """The measurements, by method, seed, kind and length."""

    def __init__(self, models: list[dict[str, Any]], projects: Sequence[str] = ()) -> None:
        self._projects = projects or None  # of the texts; where they are not known, each text is one
        self._of = {
            (model["method"], model["seed"], row["kind"], row["times"]): row
            for model in models
            for row in model["figures"]
        }
        self.methods = list(dict.fromkeys(model["method"] for model in models))

    def times(self, kind: str) -> list[int]:
        """The lengths at which a kind of text is measured."""
        return sorted({times for *_, one, times in self._of if one == kind})

    def known(self, term: AccuracyTerm) -> bool:
        """Whether every seed of its method has this figure."""
        seeds = self.seeds(term.method)
        return bool(seeds) and all((term.method, seed, term.kind, term.times) in self._of for seed in seeds)

    def seeds(self, *methods: str) -> list[int]:
        """Seeds for which all of these methods are measured."""
        of_methods = [{seed for method, seed, *_ in self._of if method == name} for name in methods]
        return sorted(set.intersection(*of_methods)) if of_methods else []

    def all(self, method: str, times: int, kind: str, what: str) -> list[float]:
        """One figure for every seed."""
        return [float(self._of[method, seed, kind, times][what]) for seed in self.seeds(method)]

    def sum(
        self, terms: Sequence[AccuracyTerm], level: float = 0.95, *, least: float = -math.inf, most: float = math.inf
    ) -> Estimate:
        """A sum of accuracies, with its interval over seeds that all of them have and over texts, by project."""
        seeds = self.seeds(*{term.method for term in terms})
        sums = [list(map(math.fsum, self._of_texts(terms, seed))) for seed in seeds]
        return crossed_mean(sums, groups=self._projects, least=least, most=most, level=level)

    def curve(self, method: str, kind: str) -> list[tuple[float, Estimate]]:
        """The accuracy at every length, with its interval."""
        terms = [AccuracyTerm(1, method, times, kind) for times in self.times(kind)]
        return [(term.times, self.sum([term], least=0, most=1)) for term in terms]

    def _of_texts(self, terms: Sequence[AccuracyTerm], seed: int) -> Iterator[tuple[float, ...]]:
        """The terms of each text."""
        rows = [(term.weight, self._of[term.method, seed, term.kind, term.times][OF_TEXTS]) for term in terms]
        return zip(*([weight * share for share in shares] for weight, shares in rows), strict=True)
