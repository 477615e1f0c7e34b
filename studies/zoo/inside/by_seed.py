"""What was measured inside models, by seed and method, and verdicts over seeds and texts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from ropewalk.measure.metrics.intervals import Estimate, crossed_mean

from studies.claims import NOT_MEASURED, ONE_SEED, Claim, JudgedClaim, Unit, judge

Curve = Mapping[float, Sequence[float]]  # at each place a figure for every text


class InsideTerm(Protocol):
    """A figure from inside a method's models, in a sum."""

    @property
    def weight(self) -> float:
        """In the sum."""

    @property
    def method(self) -> str:
        """Whose models are meant."""

    @property
    def label(self) -> str:
        """The name of its curve."""


Term = TypeVar("Term", bound=InsideTerm)
Measured = TypeVar("Measured")


class BySeed(Generic[Term, Measured]):
    """What was measured under one name, and how a term reads it: as a figure for every text, and as a curve."""

    def __init__(
        self,
        models: Sequence[Mapping[str, Any]],
        name: str,
        read: Callable[[Any], Measured],
        figure: Callable[[Term, Measured], Sequence[float]],
        curve: Callable[[Term, Measured], Curve],
        *,
        projects: Sequence[str] = (),
        least: float = -math.inf,
        most: float = math.inf,
    ) -> None:
        self._seeds: dict[int, dict[str, Measured]] = {}
        for model in models:
            if name in model:
                self._seeds.setdefault(model["seed"], {})[model["method"]] = read(model[name])
        self._figure, self._curve = figure, curve
        self._projects = projects  # of the texts; where they are not known, each text is one
        self._least, self._most = least, most  # that points of a curve can be

    def verdict(self, claim: Claim, unit: Unit, axes: tuple[str, str]) -> JudgedClaim:
        """By the seeds for which all methods of a claim are measured."""
        terms: list[Term] = [term for terms in claim.sums for term in terms]
        methods = {term.method for term in terms}
        seeds = [of for _, of in sorted(self._seeds.items()) if methods <= set(of)]
        if len(seeds) < 2:
            return JudgedClaim(claim=claim, reason=ONE_SEED if seeds else NOT_MEASURED, unit=unit)
        drawn = {term.label: term for term in terms}  # each once
        curves = {label: self._points(term, seeds) for label, term in drawn.items()}

        def estimate(terms: Sequence[Term], level: float) -> Estimate:
            return self._crossed([self._sum(terms, of) for of in seeds], level=level)

        return judge(claim, estimate, unit, axes, curves, drawn=f"{len(seeds)} seeds")

    def _sum(self, terms: Sequence[Term], of: Mapping[str, Measured]) -> list[float]:
        """For each text."""
        parts = [[term.weight * x for x in self._figure(term, of[term.method])] for term in terms]
        return [sum(of_text) for of_text in zip(*parts, strict=True)]

    def _points(self, term: Term, seeds: Sequence[Mapping[str, Measured]]) -> list[tuple[float, Estimate]]:
        """Over seeds and texts."""
        curves = [self._curve(term, of[term.method]) for of in seeds]
        at = {place: [curve[place] for curve in curves] for place in curves[0]}
        ends = {"least": self._least, "most": self._most}
        return [(place, self._crossed(of_seeds, **ends)) for place, of_seeds in at.items()]

    def _crossed(self, of_seeds: Sequence[Sequence[float]], **ends: float) -> Estimate:
        """Over seeds and texts, of which some measurements read only the first ones."""
        return crossed_mean(of_seeds, groups=self._projects[: len(of_seeds[0])] or None, **ends)
