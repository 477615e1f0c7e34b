"""What the zoo's figures say of every claim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from studies.claims import FEW_SEEDS, NOT_MEASURED, ONE_SEED, POINTS, TOO_LITTLE, Claim, JudgedClaim, judge, undecided
from studies.zoo.claims import (
    biases_and_positions,
    far_text,
    first_tokens,
    grouped_queries,
    longer_rows,
    trained_in,
    without_training,
)
from studies.zoo.claims.reruns import rerun_verdict
from studies.zoo.figures import ACCURACY, PLAIN, REPEATED, ZooFigures
from studies.zoo.inside.claims import inside_verdicts
from studies.zoo.methods import METHODS

AXES = ("length of the text, in trained lengths", "accuracy of the last tokens, percent")
LEARNED = 0.1  # accuracy at 1x below which a model is evidence for no claim
MUST_COPY = {"longer-rows-later": "longer_from_0"}  # "as good as" means little beside models that have not learned
COPYING_NEEDS = 5  # seeds, where a training may fail to learn it: of three, intervals hold the mean in 68 % of cases
COPIED = 0.5  # accuracy on repeated text at 8x, as the mean over seeds, below which a model has not learned to copy
CLAIMS = (
    *trained_in.CLAIMS,
    *biases_and_positions.CLAIMS,
    *without_training.CLAIMS,
    *first_tokens.CLAIMS,
    *far_text.CLAIMS,
    *longer_rows.CLAIMS,
    *grouped_queries.CLAIMS,
)


def _methods_of(claim: Claim) -> list[str]:
    """The methods that a claim is about; how far windows reach is one of no method, and of any weights."""
    terms = [term for terms in claim.sums for term in terms if not isinstance(term, str)]
    return list(dict.fromkeys(term.method for term in terms))


def verdicts(results: Mapping[str, Any]) -> list[JudgedClaim]:
    """What the results of `python -m studies zoo` say of every claim."""
    projects = results.get("projects", ())
    ours = ZooFigures(results["models"], projects)
    inside = [_if_learned(one, ours) for one in inside_verdicts(results["models"], projects)]
    return [*(_verdict(claim, ours) for claim in CLAIMS), rerun_verdict(ours), *inside]


def _verdict(claim: Claim, ours: ZooFigures) -> JudgedClaim:
    """By the intervals, with the figures."""
    methods = _methods_of(claim)
    if not ours.seeds(*methods) or not all(ours.known(term) for terms in claim.sums for term in terms):
        return JudgedClaim(claim=claim, reason=NOT_MEASURED, unit=POINTS)
    drawn = f"{len(ours.seeds(*methods))} seeds"
    curves = {f"{name}, {kind}": ours.curve(name, kind) for name in methods for kind in _kinds(claim)}
    if not _have_learned(claim, methods, ours):
        return JudgedClaim(claim=claim, reason=TOO_LITTLE, unit=POINTS, axes=AXES, curves=curves, drawn=drawn)
    if len(ours.seeds(*methods)) == 1:
        return JudgedClaim(claim=claim, reason=ONE_SEED, unit=POINTS, axes=AXES, curves=curves)
    said = judge(claim, ours.sum, POINTS, AXES, curves, drawn=drawn)
    few = len(ours.seeds(*methods)) < COPYING_NEEDS and any(kind != PLAIN for kind in _kinds(claim))
    return undecided(said, FEW_SEEDS) if few else said


def _if_learned(one: JudgedClaim, ours: ZooFigures) -> JudgedClaim:
    """A claim on what is inside models, unless they have learned too little."""
    if one.reason == NOT_MEASURED or _have_learned(one.claim, _methods_of(one.claim), ours):
        return one
    return replace(undecided(one, TOO_LITTLE), comparisons=())


def _have_learned(claim: Claim, methods: Sequence[str], ours: ZooFigures) -> bool:
    copies = [ours.all(name, 8, REPEATED, ACCURACY) for name in [MUST_COPY.get(claim.name)] if name]
    accuracies = [ours.all(name, 1, PLAIN, ACCURACY) for name in map(_trained_as, methods)]
    return all(min(one, default=1) >= LEARNED for one in accuracies) and all(fmean(one) >= COPIED for one in copies)


def _trained_as(method: str) -> str:
    """The method whose training a model shows: one that is changed without training may fail, and still be evidence."""
    return METHODS[method].of or method


def _kinds(claim: Claim) -> list[str]:
    return list(dict.fromkeys(term.kind for terms in claim.sums for term in terms))
