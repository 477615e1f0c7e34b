"""Claims of sources, judged by figures: a claim holds if every one of some sums of figures is above a bound."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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

NOT_MEASURED = "not measured"
ONE_SEED = "not judged: a single seed"
TOO_LITTLE = "not judged: the models have learned too little"
NOT_FINITE = "not judged: a figure is not finite"


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


POINTS, NATS = Unit("points", 100, 1), Unit("nats")


@dataclass(frozen=True, kw_only=True)
class JudgedClaim:
    """What figures say of a claim: the word, how far each sum is above the bound, and the figures as curves."""

    claim: Claim
    word: str
    unit: Unit
    above: Sequence[Estimate] = ()
    axes: tuple[str, str] = ("", "")
    curves: Mapping[str, Sequence[tuple[float, Estimate]]] = field(default_factory=dict)

    @property
    def sentence(self) -> str:
        """The claim, the verdict and the numbers that it follows from."""
        begin = f"{self.claim.text} ({self.claim.source}): **{self.word}**"
        if not self.above:
            return f"{begin}."
        return f"{begin} by {', '.join(map(self.unit.interval, self.above))} {self.unit.name}."

    @property
    def record(self) -> dict[str, Any]:
        """Everything that a page of the claim shows."""
        name, text, source, sums, bound, theirs, note = self.claim
        scale = self.unit.times
        return {
            "name": name,
            "claim": text,
            "source": source,
            "theirs": theirs,
            "note": note,
            "verdict": self.word,
            "sums": [in_words(terms) for terms in sums],
            "unit": self.unit.name,
            "bound": scale * bound,
            "above": [[finite(scale * number) for number in one[:3]] for one in self.above],
            "intervals": [self.unit.interval(one) for one in self.above],
            "axes": list(self.axes),
            "curves": {
                label: [[x, *(finite(scale * number) for number in one[:3])] for x, one in points]
                for label, points in self.curves.items()
            },
        }


def judge(
    claim: Claim,
    estimates: Sequence[Estimate],
    unit: Unit,
    axes: tuple[str, str],
    curves: Mapping[str, Sequence[tuple[float, Estimate]]],
) -> JudgedClaim:
    """The verdict on a claim, from an estimate of each of its sums."""
    if not all(math.isfinite(one.value) for one in estimates):
        return JudgedClaim(claim=claim, word=NOT_FINITE, unit=unit, axes=axes, curves=curves)
    word, above = judged(estimates, claim.bound), [_above(one, claim.bound) for one in estimates]
    return JudgedClaim(claim=claim, word=word, unit=unit, above=above, axes=axes, curves=curves)


def judged(estimates: Sequence[Estimate], bound: float) -> str:
    """In words: whether all are above the bound."""
    if all(one.low > bound for one in estimates):
        return "reproduced"
    return "not reproduced" if any(one.high < bound for one in estimates) else "not settled"


def in_words(terms: Sequence[Any]) -> str:
    """A sum as it is read aloud: what is taken first, then what is added and what is subtracted."""
    first, *others = sorted(terms, key=lambda term: getattr(term, "weight", 1) < 0)
    parts = [_weighted(first)]
    for term in others:
        parts.append(f"{'minus' if term.weight < 0 else 'plus'} {_weighted(term)}")
    return ", ".join(parts)


def _weighted(term: Any) -> str:
    size = abs(getattr(term, "weight", 1))
    return str(term) if size == 1 else f"{size:.3g} times {term}"


def _above(one: Estimate, bound: float) -> Estimate:
    """How far an estimate is above a bound."""
    return one._replace(value=one.value - bound, low=one.low - bound, high=one.high - bound)
