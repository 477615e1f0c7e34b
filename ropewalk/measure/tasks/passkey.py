"""A number hidden in filler; a question at the end asks for it. The simplest test of whether context is used.

Sample k hides it at depth (k + 1/2) / samples. The filler is held-out text, or the usual five sentences. Two scores:
whether greedy decoding writes exactly the number, and the loss of the right answer, which shows how close a failure is.

Protocol: Mohtashami & Jaggi 2023, arXiv:2305.16300; deviations: the filler is not restarted after the number, the
number always has five digits and stands in one line, and depths are a grid instead of drawn.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from ropewalk.measure.material.prompts import Prompt, with_needle
from ropewalk.measure.material.subject import Subject
from ropewalk.measure.tasks.answers import AnswerScore, score_answer
from ropewalk.measure.tasks.retrieval import AtDepths
from ropewalk.methods.spec import Json

GRASS = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again.\n"
FACT = "The pass key is {key}. Remember it. {key} is the pass key.\n"
QUESTION = "What is the pass key? The pass key is"


@dataclass(frozen=True, kw_only=True)
class Passkey(AtDepths):
    name: ClassVar[str] = "passkey"
    version: ClassVar[int] = 2
    filler: Annotated[Literal["text", "grass"], "held-out text, or the five sentences about grass"] = "text"

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
