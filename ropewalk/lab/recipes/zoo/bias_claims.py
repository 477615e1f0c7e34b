"""What the source of biases on queries and keys says of their terms, and what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from ropewalk.evaluation.metrics.intervals import Estimate, crossed
from ropewalk.lab.claims import NOT_MEASURED, Claim, JudgedClaim, Unit, judge
from ropewalk.lab.recipes.zoo.bias_terms import TERMS

LOGITS = Unit("logits", digits=3)
AXES = ("distance of the key, in tokens", "mean term of the logit")
*OTHERS, BOTH = range(len(TERMS))


class FallTerm(NamedTuple):
    """By how much a term falls: its mean at near distances less that at far ones."""

    weight: float
    term: int

    def __str__(self) -> str:
        """As part of a sum."""
        return f"{self.weight:+g} fall of {TERMS[self.term]}"


CLAIMS = (
    Claim("qk-bias-term-falls", "The product of both biases falls with the distance.", "kexue.fm/9577",
          ((FallTerm(1, BOTH),),), theirs="a curve that falls"),
    Claim("qk-bias-term-largest", "The product of both biases falls more than each of the other three terms.",
          "kexue.fm/9577", tuple((FallTerm(1, BOTH), FallTerm(-1, other)) for other in OTHERS),
          theirs="the largest of four curves"),
)  # fmt: skip


def bias_verdicts(models: Sequence[Mapping[str, Any]]) -> list[JudgedClaim]:
    """What the models with biases say; the first eighth of the distances is near, the second quarter far."""
    measured = [model["bias_terms"] for model in models if "bias_terms" in model]
    return [_verdict(claim, measured) for claim in CLAIMS]


def _verdict(claim: Claim, measured: Sequence[Any]) -> JudgedClaim:
    if not measured:
        return JudgedClaim(claim=claim, word=NOT_MEASURED, unit=LOGITS)
    curves = {name: _curve(nth, measured) for nth, name in enumerate(TERMS)}
    return judge(claim, [_sum(terms, measured) for terms in claim.sums], LOGITS, AXES, curves)


def _sum(terms: Sequence[FallTerm], measured: Sequence[Any]) -> Estimate:
    """Over models and their texts."""
    rows = []
    for of_terms in measured:
        falls = [[term.weight * _fall(text) for text in of_terms[term.term]] for term in terms]
        rows.append([sum(of_text) for of_text in zip(*falls, strict=True)])
    return crossed(rows)


def _fall(by_distance: Sequence[float]) -> float:
    """From the first eighth to the second quarter: within the trained length, which is half of the distances."""
    count = len(by_distance)
    return fmean(by_distance[: max(1, count // 8)]) - fmean(by_distance[count // 4 : count // 2])


def _curve(term: int, measured: Sequence[Any]) -> list[tuple[float, Estimate]]:
    distances = range(len(measured[0][term][0]))
    rows = [[[text[far] for text in of_terms[term]] for of_terms in measured] for far in distances]
    return [(far, crossed(row)) for far, row in zip(distances, rows, strict=True)]
