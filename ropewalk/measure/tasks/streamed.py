"""StreamEval: a stream of facts, and every few lines a question about a line some lines back.

A line names a register and its content. After every `every` lines, a question asks for the content from `back` lines
before. The stream is read once, in chunks through one cache, with questions and right answers in it. A question counts
as right if every token of its answer is the likeliest after the right ones before it. The distance to the fact is
always the same: a reach that forgets answers all questions if it keeps that many lines, and none if it does not. `late`
counts only the questions in the second half, so that the beginning, short for every method, does not help.

Protocol: Xiao et al. 2023, arXiv:2309.17453, sec. 4.4 (every 10 lines, 20 lines back; data and code were not released);
deviations: lines are sentences, and the right answer stays in the stream instead of the model's.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Annotated, ClassVar, NamedTuple

from ropewalk.measure.material.secrets import compound
from ropewalk.measure.material.subject import Subject
from ropewalk.measure.metrics.intervals import LOSS, Estimate, means, share_of_answers
from ropewalk.measure.tasks.answers import TextWithAnswers, score_answers, text_with_answers
from ropewalk.measure.tasks.retrieval import Retrieval
from ropewalk.methods.record import AT_LEAST_ONE
from ropewalk.methods.spec import Json

FACT = "The content of register {name} is {content}.\n"
ASKED = "What is the content of register {name}? The content of register {name} is"


class StreamFact(NamedTuple):
    """The fact of one line."""

    name: str
    content: str


@dataclass(frozen=True, kw_only=True)
class StreamEval(Retrieval):
    name: ClassVar[str] = "stream"
    every: Annotated[int, AT_LEAST_ONE, "lines between two questions"] = 10
    back: Annotated[int, AT_LEAST_ONE, "lines from a question back to its fact"] = 20

    def measure(self, subject: Subject, length: int, sample: int) -> Json:
        """One stream, read once."""
        stream = self.prompt(subject, length, sample)
        scores = score_answers(subject, stream)
        return {
            "right": [score.right for score in scores],
            "loss": sum(score.loss for score in scores) / len(scores),
            "places": [answer.start for answer in stream.answers],
        }

    def prompt(self, subject: Subject, length: int, sample: int) -> TextWithAnswers:
        """The stream of a sample, cut to the length: the same for every extension."""

        def write(rounds: int) -> tuple[str, list[slice]]:
            return self._text(self.chance(subject, length, sample), rounds)

        rounds = 2 * (self.back // self.every + 1)
        return text_with_answers(subject.tokenizer, write, rounds, length, fewest=1, end="the first answer")

    def _text(self, random: Random, rounds: int) -> tuple[str, list[slice]]:
        """Rounds of facts and a question; the beginning does not depend on the number of rounds."""
        facts, text, answers = list[StreamFact](), io.StringIO(), list[slice]()
        for _ in range(rounds):
            for _ in range(self.every):
                facts.append(_fact(random, facts[-2 * self.back :]))
                text.write(FACT.format(**facts[-1]._asdict()))
            if len(facts) >= self.back:
                fact = facts[-self.back]
                begin = text.tell() + text.write(ASKED.format(name=fact.name))
                text.write(f" {fact.content}\n")
                answers.append(slice(begin, text.tell() - 1))
        return text.getvalue(), answers

    def condense(self, results: Sequence[Json]) -> dict[str, Estimate]:
        """Shares over all questions of all streams, and the loss of the answers."""
        right = [result["right"] for result in results]
        return {
            "right": share_of_answers(right),
            "late": share_of_answers([hits[len(hits) // 2 :] for hits in right]),
            **means(results, loss=LOSS),
        }


def _fact(random: Random, recent: Sequence[StreamFact]) -> StreamFact:
    """A register and its content, both different from recent ones."""
    known = {word for fact in recent for word in fact}
    while True:
        name, content = compound(random), str(random.randrange(10_000, 100_000))
        if name not in known and content not in known:
            return StreamFact(name, content)
