"""A sentence hidden in held-out text, at a grid of depths; a question at the end asks for it.

Sample k hides it at depth (k mod depths) / (depths - 1), so the grid reaches from the beginning of the text to its end,
and more samples fill its cells. Town, day and advice are drawn for each sample: models trained on web pages know the
usual needle. Scored by what the model writes (the end of the sentence, word for word; the share of its words), and by
the loss of the right answer.

Protocol: Kamradt 2023, LLMTest_NeedleInAHaystack; deviations: the needle stands between lines, the answer is compared
instead of graded by another model, and the question ends with the beginning of the answer, for base models.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from ropewalk.measure.material.prompts import Prompt, with_needle
from ropewalk.measure.material.secrets import DAYS, TOWNS, compound
from ropewalk.measure.material.subject import Subject
from ropewalk.measure.tasks.answers import match_all, score_answer, write_answer
from ropewalk.measure.tasks.retrieval import Retrieval
from ropewalk.methods.record import ABOVE_ONE
from ropewalk.methods.spec import Json

OPENING = "The best thing to do in {town} on a {day} is to"
ADVICE = " bring the {first} to the {second}"
ASKED = "What is the best thing to do in {town} on a {day}? "
NEEDLE_REPLY = 48  # tokens that the model may write, or as many as the answer has


@dataclass(frozen=True, kw_only=True)
class Needle(Retrieval):
    name: ClassVar[str] = "needle"
    shares: ClassVar[tuple[str, ...]] = ("right", "words")
    depths: Annotated[int, ABOVE_ONE, "rows of the grid, from the beginning of the text to its end"] = 8

    def measure(self, subject: Subject, length: int, sample: int) -> Json:
        """One prompt."""
        prompt = self.prompt(subject, length, sample)
        answer = prompt.answer.strip()
        text = write_answer(subject, prompt, max(NEEDLE_REPLY, len(prompt.answer_ids)), lambda reply: answer in reply)
        return {
            "right": answer in text,
            "words": match_all(text, answer.split()),
            "loss": score_answer(subject, prompt).loss,
            "depth": self.depth(sample),
            "wrote": text,
        }

    def prompt(self, subject: Subject, length: int, sample: int) -> Prompt:
        """The prompt of a sample: the same for every extension."""
        random = self.chance(subject, length, sample)
        names = {"town": random.choice(TOWNS), "day": random.choice(DAYS)}
        opening, question = OPENING.format(**names), ASKED.format(**names)
        answer = ADVICE.format(first=compound(random), second=compound(random))
        return with_needle(
            subject.tokenizer,
            filler=subject.filler(random),
            needle=f"{opening}{answer}.\n",
            question=question + opening,
            answer=answer,
            depth=self.depth(sample),
            length=length,
            spare=NEEDLE_REPLY,
        )

    def depth(self, sample: int) -> float:
        """Where in the filler the sentence stands, between 0 and 1."""
        return (sample % self.depths) / (self.depths - 1)
