"""Claims of sources, judged by figures: a claim holds if every one of some sums of figures is above a bound.

A verdict is one of six kinds. Three follow from the figures: all sums are above the bound; one is below; anything else.
Three are stated beside the bound, with a reason, in bounds.json: see `studies.frozen`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ropewalk.files import finite
from ropewalk.measure.metrics.intervals import Estimate

# The five articles whose claims the project began with; studies/results/README.md has them in full. The fourth is
# kexue.fm/9577.
ARTICLE_1 = "article 1 (长度外推性)"
ARTICLE_2 = "article 2 (探索 LLM 的上下文长度外推)"
ARTICLE_3 = "article 3 (长度外推)"
ARTICLE_5 = "article 5 (盘点基于RoPE的长度外推方法演进)"

AGREES, DISAGREES, UNDECIDED = "agrees", "disagrees at this size", "undecided"
NOT_TESTABLE, BY_CONSTRUCTION, ERROR = "not testable here", "true by construction", "error of the article"
BY_FIGURES, STATED = (AGREES, DISAGREES, UNDECIDED), (NOT_TESTABLE, BY_CONSTRUCTION, ERROR)
KINDS = (*BY_FIGURES, *STATED)

# Why a claim is undecided, where it is not for its intervals.
NOT_MEASURED = "not measured"
ONE_SEED = "a single seed"
TOO_LITTLE = "the models have learned too little"
NOT_FINITE = "a figure is not finite"
FEW_SEEDS = "too few seeds: one training in seven never learns to copy, so at least five are needed"

ONE_MODEL = "one model"  # of one seed: its interval is of texts, and not of other models
LEVEL = 0.95
LEAST_CHANCE = 1e-4  # that intervals can tell


class Claim(NamedTuple):
    """What a source says, as bounds for sums of figures."""

    name: str  # of its page
    text: str
    source: str
    sums: tuple[tuple[Any, ...], ...]
    bound: float = 0.0
    theirs: str = ""  # the source's own figures
    note: str = ""  # what a reader of the verdict has to know besides


class Unit(NamedTuple):
    """How figures are written: in points of a hundred, for example."""

    name: str
    times: float = 1
    digits: int = 3

    def interval(self, one: Estimate) -> str:
        """A difference with its interval."""
        value, low, high = (f"{self.times * number:+.{self.digits}f}" for number in one[:3])
        return f"{value} [{low}, {high}]"

    def number(self, value: float) -> str:
        """A figure as it was measured; one that would be written as 0 with its power of ten."""
        scaled = self.times * value
        written = f"{scaled:.{self.digits}f}"
        return (
            f"{scaled:.0e}" if scaled and not float(written) else written.removeprefix("-") if not scaled else written
        )


POINTS, NATS = Unit("points", 100, 1), Unit("nats")
EstimateOf = Callable[[Sequence[Any], float], Estimate]  # of a sum of terms, with an interval of that level


class Comparison(NamedTuple):
    """What a claim compares: two figures as they were measured, and by how much the first is above the second."""

    words: tuple[str, str]  # of both; the second is empty where a figure is compared with the bound alone
    left: float
    right: float | None
    above: Estimate  # left, minus right, minus the bound
    chance: float  # of a difference as large as this from the bound, if there were none

    def to_json(self, scale: float) -> dict[str, Any]:
        """In the unit of the claim."""
        right = None if self.right is None else finite(scale * self.right)
        above = [finite(scale * number) for number in self.above[:3]]
        return {
            "compared": list(self.words),
            "left": finite(scale * self.left),
            "right": right,
            "above": above,
            "chance": round(self.chance, 5),
        }


@dataclass(frozen=True, kw_only=True)
class JudgedClaim:
    """What figures say of a claim: the word, what was compared, and the figures as curves."""

    claim: Claim
    unit: Unit
    word: str = UNDECIDED
    reason: str = ""  # of a word that does not follow from the comparisons
    drawn: str = ONE_MODEL  # what the figures are of
    comparisons: Sequence[Comparison] = ()
    axes: tuple[str, str] = ("", "")
    curves: Mapping[str, Sequence[tuple[float, Estimate]]] = field(default_factory=dict)
    last_half: JudgedClaim | None = None  # the same losses over the last half of each text, not over its last tokens

    @property
    def verdict(self) -> str:
        """The word, with what a reader has to know at once."""
        beside = [self.reason] if self.reason else []
        beside += [self.drawn] if self.drawn.startswith("one ") and self.word in (*BY_FIGURES, ERROR) else []
        return f"{self.word} ({'; '.join(beside)})" if beside else self.word

    @property
    def above(self) -> list[Estimate]:
        """By how much each sum is above the bound."""
        return [one.above for one in self.comparisons]

    @property
    def figures(self) -> list[str]:
        """What was compared, in raw numbers: 34.5 against 34.2."""
        return [self._figure(one) for one in self.comparisons]

    def _figure(self, one: Comparison) -> str:
        bound = self.claim.bound
        if one.right is None:
            return f"{self.unit.number(one.left)} against {self.unit.number(bound)}"
        beyond = f", {'plus' if bound > 0 else 'less'} {self.unit.number(abs(bound))}" if bound else ""
        return f"{self.unit.number(one.left)} against {self.unit.number(one.right)}{beyond}"

    @property
    def sentence(self) -> str:
        """The claim, the verdict and the numbers that it follows from."""
        begin = f"{self.claim.text} ({self.claim.source}): **{self.verdict}**"
        return f"{begin}: {'; '.join(self.figures)} {self.unit.name}." if self.comparisons else f"{begin}."

    @property
    def chance(self) -> float:
        """The chance of a verdict as clear as this if the figures were equal to the bound; 1 where none was measured.

        All comparisons have to be above the bound, so the weakest of them counts; of several, one may be below by
        chance, so the chance of that is multiplied.
        """
        if not self.comparisons:
            return 1.0
        below = [one.chance for one in self.comparisons if one.above.value < 0]
        most = min(1.0, len(self.comparisons) * min(below)) if below else max(one.chance for one in self.comparisons)
        return most

    @property
    def record(self) -> dict[str, Any]:
        """Everything that a page of the claim shows."""
        name, text, source, _, bound, theirs, note = self.claim
        scale = self.unit.times
        return {
            "name": name,
            "claim": text,
            "source": source,
            "theirs": theirs,
            "note": note,
            "verdict": self.word,
            "reason": self.reason,
            "of": self.drawn,
            "unit": self.unit.name,
            "bound": scale * bound,
            "comparisons": [one.to_json(scale) for one in self.comparisons],
            "axes": list(self.axes),
            "curves": {
                label: [[x, *(finite(scale * number) for number in one[:3])] for x, one in points]
                for label, points in self.curves.items()
            },
            **({"last half": self.last_half.word} if self.last_half else {}),
        }


def judge(
    claim: Claim,
    estimate: EstimateOf,
    unit: Unit,
    axes: tuple[str, str] = ("", ""),
    curves: Mapping[str, Sequence[tuple[float, Estimate]]] | None = None,
    *,
    drawn: str = ONE_MODEL,
) -> JudgedClaim:
    """The verdict on a claim, from an estimate of each of its sums."""
    said = JudgedClaim(claim=claim, unit=unit, axes=axes, curves=curves or {}, drawn=drawn)
    if not all(math.isfinite(estimate(terms, LEVEL).value) for terms in claim.sums):
        return undecided(said, NOT_FINITE)
    comparisons = [_comparison(terms, claim.bound, estimate) for terms in claim.sums]
    return JudgedClaim(**{**vars(said), "word": _word(claim, estimate), "comparisons": comparisons})


def undecided(said: JudgedClaim, reason: str) -> JudgedClaim:
    """The claim without a verdict from its figures."""
    return JudgedClaim(**{**vars(said), "word": UNDECIDED, "reason": reason})


def _word(claim: Claim, estimate: EstimateOf) -> str:
    """Whether all sums are above the bound.

    All have to be, each with 95 %, so that several make it no easier. One below is enough to disagree, so that several
    would make that easier by chance: each has to be below with 95 % for all of them together.
    """
    if all(estimate(terms, LEVEL).low > claim.bound for terms in claim.sums):
        return AGREES
    together = 1 - (1 - LEVEL) / len(claim.sums)
    return DISAGREES if any(estimate(terms, together).high < claim.bound for terms in claim.sums) else UNDECIDED


def _comparison(terms: Sequence[Any], bound: float, estimate: EstimateOf) -> Comparison:
    one = estimate(terms, LEVEL)
    above = one._replace(value=one.value - bound, low=one.low - bound, high=one.high - bound)
    first = [term for term in terms if _weight(term) >= 0]
    others = [term._replace(weight=-term.weight) for term in terms if _weight(term) < 0]
    chance = chance_of(lambda level: estimate(terms, level), bound)
    if not first or not others:
        return Comparison((in_words(terms), ""), one.value, None, above, chance)
    # Both of what has both, as their difference is: another term that weighs nothing asks for the same seeds and texts.
    left, right = estimate([*first, *_silent(others)], LEVEL).value, estimate([*others, *_silent(first)], LEVEL).value
    return Comparison((in_words(first), in_words(others)), left, right, above, chance)


def _silent(terms: Sequence[Any]) -> list[Any]:
    return [term._replace(weight=0.0) for term in terms]


def chance_of(at: Callable[[float], Estimate], bound: float) -> float:
    """The smallest chance of error at which an interval excludes the bound; 1 where none of 50 % does."""
    least, most = math.log(LEAST_CHANCE), math.log(0.5)

    def excludes(chance: float) -> bool:
        return at(1 - math.exp(chance)).clear_of(bound)

    if not excludes(most):
        return 1.0
    while most - least > 0.01:
        middle = (least + most) / 2
        least, most = (least, middle) if excludes(middle) else (middle, most)
    return math.exp(most)


def in_words(terms: Sequence[Any]) -> str:
    """A sum as it is read aloud: what is taken first, then what is added and what is subtracted."""
    first, *others = sorted(terms, key=lambda term: _weight(term) < 0)
    parts = [_weighted(first)]
    for term in others:
        parts.append(f"{'minus' if _weight(term) < 0 else 'plus'} {_weighted(term)}")
    return ", ".join(parts)


def _weight(term: Any) -> float:
    return float(getattr(term, "weight", 1))


def _weighted(term: Any) -> str:
    size = abs(_weight(term))
    return str(term) if size == 1 else f"{size:.3g} times {term}"
