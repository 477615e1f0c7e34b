"""What the source of NBCE claims, judged by what `ropewalk compare` measured of the task many_contexts.

python -m studies.contexts FOLDER MORE        collect the results that two commands wrote into results/contexts
python -m studies.contexts retrieval FOLDER   collect NBCE beside a retrieved context, on questions of their own

FOLDER has every rule; MORE has more questions for NBCE, since a share of right answers needs many.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from ropewalk.measure.metrics.intervals import Estimate, mean, minus, share

from studies.claims import ARTICLE_1, LEVEL, NATS, POINTS, Claim, JudgedClaim, judge
from studies.records import command_of, read, write

PLACE = Path(__file__).resolve().parent / "results" / "contexts" / "contexts.json"
MEAN, MAX, LEAST = "many_contexts_mean_0.25", "many_contexts_max_0.25", "many_contexts_entropy_{}"
PRODUCT, RETRIEVED = "many_contexts_product", "many_contexts_retrieved"
POOLINGS = {"entropy": "least entropy", "mean": "mean", "max": "maximum"}
ALONE = {PRODUCT: "exact naive Bayes", RETRIEVED: "the context that BM25 retrieves"}
BETAS = ("0", "0.25", "0.5", "1")
LOSS, RIGHT = "loss", "right"
SOURCE = "kexue.fm/9617"


EVERY, MORE, RETRIEVAL = "answers under every rule", "more answers", "beside retrieval"
Figures = Mapping[str, Any]
NOTHING: Figures = {"answers": []}


class AnswerTerm(NamedTuple):
    """A figure of answers in a sum: by a rule, from so many contexts."""

    weight: float
    rule: str
    contexts: int
    what: str = LOSS

    def __str__(self) -> str:
        """Without its weight."""
        return f"{named(self.rule)} of {self.contexts} contexts"


def named(rule: str) -> str:
    """A rule in words."""
    if rule in ALONE:
        return ALONE[rule]
    _, _, pooling, beta = rule.rsplit("_", 3)
    return f"{POOLINGS[pooling]} (beta {beta})"


BETTER = "NBCE's context of least entropy is better than {}: the loss of the answer is lower."
OTHERS = (
    ("least-entropy", BETTER.format("the mean of all contexts"), SOURCE, (MEAN,)),
    ("maximum", BETTER.format("the maximum of all contexts"), f"{SOURCE}; {ARTICLE_1}", (MAX,)),
    ("exact", BETTER.format("exact naive Bayes"), f"{SOURCE}, which finds least entropy the best", (PRODUCT,)),
    (
        "beta",
        "A beta of 0.25 is the best: the loss of the answer is lower than with 0, 0.5 and 1.",
        SOURCE,
        tuple(LEAST.format(beta) for beta in BETAS if beta != "0.25"),
    ),
)  # what the context of least entropy is compared with


def claims_for(counts: Sequence[int]) -> list[Claim]:
    """The claims, for numbers of contexts that were measured."""
    best = LEAST.format("0.25")
    return [
        *(Claim(name, text, source, _lower(best, others, counts)) for name, text, source, others in OTHERS),
        Claim(
            "many-contexts",
            "NBCE answers from many contexts as from few: the share of right answers falls by less than ten points.",
            SOURCE,
            ((AnswerTerm(1, best, max(counts), RIGHT), AnswerTerm(-1, best, min(counts), RIGHT)),),
            -0.1,
            "12 contexts of 9,000 characters together, every question answered",
        ),
    ]


def retrieval_claims(counts: Sequence[int]) -> list[Claim]:
    """The claims on retrieval, for the largest number of contexts."""
    best, most = LEAST.format("0.25"), max(counts)
    return [
        Claim(
            "retrieval",
            "NBCE can take the place of retrieval on a small scale: its share of right answers is at most ten points "
            "below that from the one context which BM25 finds for the question.",
            f"{ARTICLE_1} on {SOURCE}",
            ((AnswerTerm(1, best, most, RIGHT), AnswerTerm(-1, RETRIEVED, most, RIGHT)),),
            -0.1,
            note="The question has the words of the line that answers it, which suits BM25.",
        ),
    ]


def _lower(best: str, others: Sequence[str], counts: Sequence[int]) -> tuple[tuple[AnswerTerm, ...], ...]:
    """By how much the loss under the best rule is lower, for every number of contexts."""
    return tuple((AnswerTerm(1, other, count), AnswerTerm(-1, best, count)) for count in counts for other in others)


class Answers:
    """What was measured, by rule and number of contexts: one figure for each question."""

    def __init__(self, answers: Sequence[Figures], more: Sequence[Figures]) -> None:
        self._of = _by_rule(answers)
        self._more = {**self._of, **_by_rule(more)}
        self.counts = sorted({count for _, count in self._of})

    def sum(self, terms: Sequence[AnswerTerm], level: float = LEVEL, *, least: float = -math.inf) -> Estimate:
        """A sum of figures, with its interval over questions."""
        if {term.what for term in terms} == {RIGHT}:
            return self._of_shares(terms, level)
        rows = [[term.weight * sample[term.what] for sample in self._of[term.rule, term.contexts]] for term in terms]
        return mean([sum(of_question) for of_question in zip(*rows, strict=True)], least=least, level=level)

    def _of_shares(self, terms: Sequence[AnswerTerm], level: float) -> Estimate:
        """A share of right answers, or one less another."""
        shares = {term.weight: self._share(self._more[term.rule, term.contexts], level) for term in terms}
        return minus(shares[1], shares[-1]) if -1 in shares else shares[1]

    def _share(self, samples: Sequence[Mapping[str, Any]], level: float) -> Estimate:
        return share(sum(sample[RIGHT] for sample in samples), len(samples), level=level)

    def curve(self, rule: str, what: str) -> list[tuple[float, Estimate]]:
        """By number of contexts."""
        return [(count, self.sum([AnswerTerm(1, rule, count, what)], least=0)) for count in self.counts]


def answers_of(results: Figures) -> list[Figures]:
    """What was measured of each question, for every rule and length; at the trained length contexts are shorter."""
    return [
        {
            "rule": row["task"],
            "contexts": round(fmean(sample["contexts"] for sample in row["samples"])),
            "questions": [{name: sample[name] for name in (LOSS, RIGHT)} for sample in row["samples"]],
        }
        for row in results["candidates"][0]["rows"]
        if row["task"].startswith("many_contexts") and row["length"] > results["trained_len"]
    ]


def _by_rule(answers: Sequence[Figures]) -> dict[tuple[str, int], Sequence[Figures]]:
    return {(one["rule"], one["contexts"]): one["questions"] for one in answers}


def verdicts(kept: Figures) -> list[JudgedClaim]:
    """What the answers say of every claim."""
    ours, beside = Answers(kept[EVERY], kept[MORE]), Answers(kept.get(RETRIEVAL, NOTHING)["answers"], ())
    retrieval = retrieval_claims(beside.counts) if beside.counts else []
    return [
        *(_verdict(claim, ours) for claim in claims_for(ours.counts)),
        *(_verdict(claim, beside) for claim in retrieval),
    ]


def _verdict(claim: Claim, ours: Answers) -> JudgedClaim:
    rules = dict.fromkeys(term.rule for terms in claim.sums for term in terms)
    what = claim.sums[0][0].what
    losses = what == LOSS
    return judge(
        claim,
        ours.sum,
        NATS if losses else POINTS,
        ("contexts", "loss of the answer, nats" if losses else "right answers, percent"),
        {named(rule): ours.curve(rule, what) for rule in rules},
    )


def collect(folder: Path, more: Path) -> Figures:
    """What the claims follow from."""
    every, questions = (read(path / "results.json") for path in (folder, more))
    different = [name for name, mark in every["marks"].items() if questions["marks"][name] != mark]
    if different:
        sys.exit(f"{folder} and {more} differ in {', '.join(different)}: measure both on one model and its texts")
    kept = {name: every[name] for name in ("command", "made", "marks")}
    named_as = ((every, "FOLDER"), (questions, "MORE"))
    kept["command"] = " && ".join(command_of(one, name) for one, name in named_as)
    retrieval = read(PLACE).get(RETRIEVAL, NOTHING) if PLACE.is_file() else NOTHING
    return {**kept, EVERY: answers_of(every), MORE: answers_of(questions), RETRIEVAL: retrieval}


def collect_retrieval(folder: Path) -> Figures:
    """What is stored, with NBCE beside a retrieved context."""
    results = read(folder / "results.json")
    origin = {name: results[name] for name in ("made", "marks")}
    origin["command"] = command_of(results)
    return {**read(PLACE), RETRIEVAL: {**origin, "answers": answers_of(results)}}


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["retrieval", folder]:
            kept = collect_retrieval(Path(folder))
        case [folder, more]:
            kept = collect(Path(folder), Path(more))
        case _:
            sys.exit(__doc__)
    write(PLACE, kept)
