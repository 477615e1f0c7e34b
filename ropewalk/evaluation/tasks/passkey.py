"""A number hidden in filler, and asked for at the end: the least that a model which uses its context can do.

Sample k hides it at depth (k + 1/2) / samples. The number is told once; the filler is held-out text, or the well-known
five sentences. Scored twice: what the model writes (greedily, the answer's tokens exactly), and the loss of the answer
when it is given, which says more of a model that just fails.

Protocol: Mohtashami & Jaggi 2023, arXiv:2305.16300; deviations: the filler is not restarted after the number, the
number has five digits always and is told once, and depths are a grid instead of drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from ropewalk.evaluation.material.prompts import Prompt, with_needle
from ropewalk.evaluation.material.subject import Subject
from ropewalk.evaluation.metrics.intervals import LOSS, Estimate, means, share
from ropewalk.evaluation.tasks.answers import AnswerScore, score_answer
from ropewalk.evaluation.tasks.retrieval import Retrieval
from ropewalk.spec import Json

GRASS = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again.\n"
FACT = "The pass key is {key}. Remember it. {key} is the pass key.\n"
QUESTION = "What is the pass key? The pass key is"


@dataclass(frozen=True, kw_only=True)
class Passkey(Retrieval):
    name: ClassVar[str] = "passkey"
    version: ClassVar[int] = 2
    filler: Annotated[Literal["text", "grass"], "held-out text, or the five sentences"] = "text"

    def measure(self, subject: Subject, length: int, sample: int) -> Json:
        """One prompt."""
        answer: AnswerScore = score_answer(subject, self.prompt(subject, length, sample))
        return {"right": answer.right, "loss": answer.loss, "depth": self.depth(sample)}

    def prompt(self, subject: Subject, length: int, sample: int) -> Prompt:
        """The prompt of a sample: the same for every extension."""
        random = self.chance(subject, length, sample)
        key = str(random.randrange(10_000, 100_000))
        filler = GRASS if self.filler == "grass" else subject.filler(random)
        return with_needle(
            subject.tokenizer,
            filler=filler,
            needle=FACT.format(key=key),
            question=QUESTION,
            answer=f" {key}",
            depth=self.depth(sample),
            length=length,
        )

    def depth(self, sample: int) -> float:
        """Where in the filler the number stands, between 0 and 1."""
        return (sample + 0.5) / self.samples

    def identity(self, sample: int) -> Json:
        """With its depth, which follows from how many there are."""
        return super().identity(sample) | {"depth": self.depth(sample)}

    def condense(self, results: Sequence[Json]) -> dict[str, Estimate]:
        """The share of right answers, and the answer's loss."""
        return {
            "right": share(sum(each["right"] for each in results), len(results)),
            **means(results, loss=LOSS),
        }
