"""Whether NBCE joins pieces of several contexts: what its source says, judged on the carried model.

python -m studies.pieces          measure, and write results/pieces/pieces.json

Two contexts of the trained length have a fact each, and one has both. `pieces` asks for both, one after the other: each
token needs one context alone. `combined` asks for a value that only both together tell: one says which of two names is
meant, the other has the values of the two. A claim is judged only if the model answers from the one that has both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from ropewalk.measure.metrics.intervals import Estimate, minus, share

from studies.carried import carried
from studies.claims import ARTICLE_1, NOT_TESTABLE, POINTS, Claim, JudgedClaim, judge
from studies.records import write

if TYPE_CHECKING:
    from ropewalk.measure.material.prompts import Prompt
    from ropewalk.measure.material.subject import Subject

PLACE = Path(__file__).resolve().parent / "results" / "pieces" / "pieces.json"
QUESTIONS, CORPUS, BETA = 96, "stdlib", 0.25
ONE, SEVERAL = "one context that has both", "least entropy of two contexts"
PIECES, COMBINED = "pieces", "combined"
RIGHT = "right answers"
ABLE = 0.75  # of the questions, from one context: half-way from guessing one of two values to always
UNABLE = "from a single context the model answers too few"
SOURCE = f"{ARTICLE_1} on kexue.fm/9617"


class TwoFacts(NamedTuple):
    """The lines of two contexts, the question, and its answer: wordings that the model was trained on."""

    lines: tuple[tuple[str, ...], tuple[str, ...]]
    question: str
    answer: str


ASKED = {
    PIECES: TwoFacts(
        (("\nThe pass key is {a}. Remember it. {a} is the pass key.\n",), ("\nThe secret number is {b}.\n",)),
        "What is the pass key? The pass key is",
        " {a}.\nQuestion: what is the secret number? Answer: {b}",
    ),
    COMBINED: TwoFacts(
        (("\n# wixo is baco\n",), ("\n# baco is {a}\n", "\n# duko is {b}\n")),
        "# what is wixo? wixo is",
        " {a}",
    ),
}


class Answered(NamedTuple):
    """A share of right answers, in a sum."""

    weight: float
    asked: str
    way: str

    def __str__(self) -> str:
        """Without its weight."""
        return f"{self.way}, asked for {self.asked}"


CLAIMS = (
    Claim("nbce-pieces", "NBCE joins an answer of pieces that come from several contexts: its share of right "
          "answers is at most ten points below that of one context which has both.", SOURCE,
          ((Answered(1, PIECES, SEVERAL), Answered(-1, PIECES, ONE)),), -0.1,
          note="An answer is right if every digit of both numbers is."),
    Claim("nbce-combined", "NBCE fails where an answer needs several contexts at once: its share of right answers "
          "is lower than that of one context which has both.", SOURCE,
          ((Answered(1, COMBINED, ONE), Answered(-1, COMBINED, SEVERAL)),)),
)  # fmt: skip


def prompts_of(subject: Subject, asked: TwoFacts, random: Random) -> tuple[Prompt, list[Prompt], dict[str, str]]:
    """One context with both facts; the question alone and after each of two contexts; and the numbers."""
    from ropewalk.measure.material.prompts import (
        GrowingPrompt,
        HiddenLines,
        drop_lines,
        fit_prompt,
        scatter,
        tokenise_prompt,
    )

    numbers = dict(zip("ab", map(str, random.sample(range(10_000, 100_000), 2)), strict=True))
    filler, answer = drop_lines(subject.filler(random), numbers.values()), asked.answer.format(**numbers)
    first, second = ([HiddenLines(line.format(**numbers), random.random()) for line in of] for of in asked.lines)

    def context(hidden: Sequence[HiddenLines]) -> Prompt:
        growing = GrowingPrompt(lambda size: scatter(filler, hidden, size) + asked.question, answer)
        return fit_prompt(subject.tokenizer, growing, subject.facts.trained_len)

    alone = tokenise_prompt(subject.tokenizer, asked.question, answer)
    return context([*first, *second]), [alone, context(first), context(second)], numbers


def digits_of(subject: Subject, prompt: Prompt, numbers: Mapping[str, str]) -> list[int]:
    """Which tokens of the answer belong to a number."""
    from ropewalk.measure.material.prompts import tokens_with_offsets

    _, offsets = tokens_with_offsets(subject.tokenizer, prompt.text + prompt.answer)
    asked = [number for number in numbers.values() if number in prompt.answer]
    begins = [(len(prompt.text) + prompt.answer.index(number), len(number)) for number in asked]
    answer = offsets[len(prompt.ids) :]
    return [
        place
        for place, (first, last) in enumerate(answer)
        if any(last > begin and first < begin + size for begin, size in begins)
    ]


def answered(subject: Subject, asked: TwoFacts, random: Random) -> dict[str, bool]:
    """Whether every digit is right, after the right ones before it, in either way."""
    from ropewalk.measure.tasks.many_contexts import combine, read as read_contexts
    from ropewalk.methods.decoding import NBCE, MeanPooling

    both, contexts, numbers = prompts_of(subject, asked, random)
    rows = {ONE: (MeanPooling(beta=0), [contexts[0], both]), SEVERAL: (NBCE(beta=BETA), contexts)}
    found = {}
    for way, (rule, prompts) in rows.items():
        hits = combine(rule, read_contexts(subject, prompts), prompts[-1].answer_ids).hits
        found[way] = all(hits[place] for place in digits_of(subject, prompts[-1], numbers))
    return found


def measured() -> Mapping[str, Any]:
    """Every question in both ways."""
    from ropewalk.hf.probe.facts import trained_len
    from ropewalk.measure.comparison.store import provenance

    opened = carried()
    subject = opened.subject(CORPUS, trained_len(opened.model))
    found: dict[str, dict[str, list[bool]]] = {}
    for name, asked in ASKED.items():
        each = [answered(subject, asked, Random(f"{name}/{sample}")) for sample in range(QUESTIONS)]
        found[name] = {way: [one[way] for one in each] for way in (ONE, SEVERAL)}
    return {"made": provenance(), RIGHT: found}


def verdicts(kept: Mapping[str, Any]) -> list[JudgedClaim]:
    """What the answers say of every claim."""
    return [_verdict(claim, kept[RIGHT]) for claim in CLAIMS]


Answers = Mapping[str, Mapping[str, Sequence[bool]]]


def _verdict(claim: Claim, answers: Answers) -> JudgedClaim:
    within, several = (answers[claim.sums[0][0].asked][way] for way in (ONE, SEVERAL))
    figure = f"From {ONE} the model answers {sum(within)} of {len(within)}, from {SEVERAL} {sum(several)}."
    claim = claim._replace(note=f"{claim.note} {figure}".strip())
    if sum(within) < ABLE * len(within):
        bar = f"Guessing one of its two values is right in half; the claim is judged from {ABLE:.0%} on."
        claim = claim._replace(note=f"{claim.note} {bar}")
        return JudgedClaim(claim=claim, word=NOT_TESTABLE, reason=UNABLE, unit=POINTS)
    return judge(claim, lambda terms, level: _sum(terms, answers, level), POINTS)


def _sum(terms: Sequence[Answered], answers: Answers, level: float) -> Estimate:
    """One share less another, of the same questions: the interval is rather too wide."""
    shares = {}
    for term in terms:
        of_questions = answers[term.asked][term.way]
        shares[term.weight] = share(sum(of_questions), len(of_questions), level=level)
    return minus(shares[1], shares[-1]) if -1 in shares else shares[1]


if __name__ == "__main__":
    write(PLACE, measured())
