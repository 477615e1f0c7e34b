"""A needle that shares no word with its question: a model that finds it has followed an association, not a word.

Several people are in the text, and each has something to do with another place; the question names a place, and asks
for the person. Two kinds of association:

    stated   "Hanna bought the copper-kettle."  "The copper-kettle came from Ghent."   Which person has something from
             Ghent?   Two steps through the text: for any model that can read.
    known    "Hanna lives beside the Eiffel Tower."   Which person has been to France?   The step between them is
             knowledge of the world, which small models and models of code do not have.

`right` is the share of prompts where, of the people in the text, the right one has the lowest loss. Chance is 1 in
`people` (25 % for four), and `above_chance` is what is above it: a model for which that interval includes 0 at its
trained length tells nothing about long texts. `margin` is by how many nats the right one is likelier than the likeliest
other one, `greedy` the share where greedy decoding writes the name. The needle's depth is on a grid as in the task
`needle`; everything else about people stands anywhere.

Protocol: after NoLiMa (Modarressi et al. 2025, arXiv:2502.05167), whose needles may not be used commercially: these
are our own. Deviations: held-out text instead of shuffled books, and a choice among the people instead of a search for
the name in what the model writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Annotated, ClassVar, Literal, NamedTuple

from ropewalk.measure.material.prompts import (
    GrowingPrompt,
    HiddenLines,
    Prompt,
    drop_lines,
    fit_prompt,
    require_count,
    scatter,
    tokenise_prompt,
)
from ropewalk.measure.material.secrets import LANDMARKS, PEOPLE, TOWNS, compounds
from ropewalk.measure.material.subject import Subject
from ropewalk.measure.metrics.intervals import ANY, LOSS, Estimate, means, share
from ropewalk.measure.tasks.answers import score_answer
from ropewalk.measure.tasks.retrieval import Retrieval
from ropewalk.methods.record import ABOVE_ONE, Rule
from ropewalk.methods.spec import Json

OWNER, ORIGIN = "{person} bought the {thing}.\n", "The {thing} came from {place}.\n"
NEIGHBOUR = "{person} lives beside {thing}.\n"
ASKED = {
    "stated": "Which person has something from {place}? That is",
    "known": "Which person has been to {place}? That is",
}
FITTING = Rule(f"from 2 to {len(PEOPLE)}", lambda count: 2 <= count <= len(PEOPLE))


class Association(NamedTuple):
    """A person, what is said of them, and the place that a question would name."""

    person: str
    thing: str
    place: str


class PosedAssociation(NamedTuple):
    """A prompt, and everybody who is in it: the right one first."""

    prompt: Prompt
    people: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Latent(Retrieval):
    name: ClassVar[str] = "latent"
    kind: Annotated[Literal["stated", "known"], "where the step from needle to question comes from"] = "stated"
    people: Annotated[int, FITTING, "people in the text, of whom one is right"] = 4
    depths: Annotated[int, ABOVE_ONE, "rows of the grid, from the beginning of the text to its end"] = 5

    def measure(self, subject: Subject, length: int, sample: int) -> Json:
        """One prompt, read once for each person."""
        posed = self.posed(subject, length, sample)
        prompts = [tokenise_prompt(subject.tokenizer, posed.prompt.text, f" {person}") for person in posed.people]
        scores = [score_answer(subject, prompt) for prompt in prompts]
        nats = [score.loss * len(prompt.answer_ids) for score, prompt in zip(scores, prompts, strict=True)]
        return {
            "right": nats[0] < min(nats[1:]),
            "greedy": scores[0].right,
            "margin": min(nats[1:]) - nats[0],
            "loss": scores[0].loss,
            "depth": self.depth(sample),
        }

    def prompt(self, subject: Subject, length: int, sample: int) -> Prompt:
        """The prompt of a sample: the same for every extension."""
        return self.posed(subject, length, sample).prompt

    def posed(self, subject: Subject, length: int, sample: int) -> PosedAssociation:
        """The prompt of a sample, and its people."""
        random = self.chance(subject, length, sample)
        drawn = associations(random, self.kind, self.people)
        clean = drop_lines(subject.filler(random), [word for one in drawn for word in one])
        hidden = [HiddenLines(line, depth) for line, depth in self._lines(random, drawn, self.depth(sample))]
        question = ASKED[self.kind].format(place=drawn[0].place)

        def text(size: int) -> str:
            return scatter(clean, hidden, size) + question

        names = tuple(one.person for one in drawn)
        spare = max(subject.tokens(f" {name}") for name in names)
        prompt = fit_prompt(subject.tokenizer, GrowingPrompt(text, f" {names[0]}", spare), length)
        require_count(prompt, dict.fromkeys(names, 1))
        return PosedAssociation(prompt, names)

    def _lines(self, random: Random, drawn: Sequence[Association], depth: float) -> list[tuple[str, float]]:
        """What is hidden, and where: the needle at its depth, the rest anywhere."""
        needle = OWNER if self.kind == "stated" else NEIGHBOUR
        needles = [needle.format(**one._asdict()) for one in drawn]
        origins = [ORIGIN.format(**one._asdict()) for one in drawn] if self.kind == "stated" else []
        return [(needles[0], depth), *((line, random.random()) for line in (*needles[1:], *origins))]

    def depth(self, sample: int) -> float:
        """Where in the filler the needle stands, between 0 and 1."""
        return (sample % self.depths) / (self.depths - 1)

    def condense(self, results: Sequence[Json]) -> dict[str, Estimate]:
        """The share of right choices and what is above chance, margins, greedy answers, and the loss of the answer."""
        right = share(sum(result["right"] for result in results), len(results))
        value, low, high = (end - 1 / self.people for end in right[:3])
        greedy = share(sum(result["greedy"] for result in results), len(results))
        return {
            "right": right,
            "above_chance": Estimate(value, low, high, right.of),
            **means(results, margin=ANY),
            "greedy": greedy,
            **means(results, loss=LOSS),
        }


def associations(random: Random, kind: str, count: int) -> list[Association]:
    """People with different things from different places; the first is asked for."""
    people = random.sample(PEOPLE, count)
    if kind == "known":
        pairs = random.sample(sorted(LANDMARKS.items()), count)
    else:
        pairs = list(zip(compounds(random, count), random.sample(TOWNS, count), strict=True))
    return [Association(person, *pair) for person, pair in zip(people, pairs, strict=True)]
