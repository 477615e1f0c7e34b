"""A sentence hidden in held-out text, at depths of a grid, and asked for at the end.

Sample k hides it at depth (k mod depths) / (depths - 1), so a grid's corners are the text's beginning and end, and more
samples fill its cells. Town, day and advice are drawn anew for each sample: a needle that is always the same is known
to models that were trained on pages about it. Scored by what the model writes (the sentence's end, word for word; the
share of its words), and by the loss of the answer when it is given.

Protocol: Kamradt 2023, LLMTest_NeedleInAHaystack; deviations: the needle stands between lines, the answer is compared
instead of judged by another model, and the question ends with the answer's beginning, for models that only continue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from ropewalk.evaluation.material.prompts import Prompt, with_needle
from ropewalk.evaluation.material.subject import Subject
from ropewalk.evaluation.material.words import DAYS, TOWNS, compound
from ropewalk.evaluation.metrics.intervals import LOSS, Estimate, means, share
from ropewalk.evaluation.tasks.answers import found_all, score_answer, written
from ropewalk.evaluation.tasks.retrieval import Retrieval
from ropewalk.record import ABOVE_ONE
from ropewalk.spec import Json

OPENING = "The best thing to do in {town} on a {day} is to"
ADVICE = " bring the {first} to the {second}"
ASKED = "What is the best thing to do in {town} on a {day}? "
WRITES = 48  # tokens within which the answer has to come, or as many as it has


@dataclass(frozen=True, kw_only=True)
class Needle(Retrieval):
    name: ClassVar[str] = "needle"
    depths: Annotated[int, ABOVE_ONE, "rows of the grid, from the text's beginning to its end"] = 8

    def measure(self, subject: Subject, length: int, sample: int) -> Json:
        """One prompt."""
        prompt = self.prompt(subject, length, sample)
        answer = prompt.answer.strip()
        text = written(subject, prompt, max(WRITES, len(prompt.answer_ids)), lambda said: answer in said)
        return {
            "right": answer in text,
            "words": found_all(text, answer.split()),
            "loss": score_answer(subject, prompt).loss,
            "depth": self.depth(sample),
            "wrote": text,
        }

    def prompt(self, subject: Subject, length: int, sample: int) -> Prompt:
        """The prompt of a sample: the same for every extension."""
        random = self.chance(subject, length, sample)
        given = {"town": random.choice(TOWNS), "day": random.choice(DAYS)}
        opening, asked = OPENING.format(**given), ASKED.format(**given)
        answer = ADVICE.format(first=compound(random), second=compound(random))
        return with_needle(
            subject.tokenizer,
            filler=subject.filler(random),
            needle=f"{opening}{answer}.\n",
            question=asked + opening,
            answer=answer,
            depth=self.depth(sample),
            length=length,
            spare=WRITES,
        )

    def depth(self, sample: int) -> float:
        """Where in the filler the sentence stands, between 0 and 1."""
        return (sample % self.depths) / (self.depths - 1)

    def condense(self, results: Sequence[Json]) -> dict[str, Estimate]:
        """The share of right answers, of their words, and the answer's loss."""
        return {
            "right": share(sum(each["right"] for each in results), len(results)),
            "words": share(sum(each["words"] for each in results), len(results)),
            **means(results, loss=LOSS),
        }
