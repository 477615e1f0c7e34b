"""StreamEval: facts in a stream without end, and every few lines a question about a line some lines back.

A line names a register and its content; after every `every` lines, the content told `back` lines before is asked for.
The stream is read once through a cache that is kept, piece by piece, questions and right answers included; a question
counts where every token of its answer is the likeliest after the right ones before it. What is asked for is always as
far back, so a reach that forgets can answer for ever where it holds so many lines, and fails from the first where not.
`late` is of the questions in the second half alone: the beginning, which is short for every method, does not help it.

Protocol: Xiao et al. 2023, arXiv:2309.17453, sec. 4.4 (every 10 lines, 20 lines back; data and code were not released);
deviations: lines are told as sentences, the right answer is what stays in the stream, not the model's own.
"""

from __future__ import annotations

import io
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Annotated, ClassVar, NamedTuple

import torch

from ropewalk.errors import DoesNotFit
from ropewalk.evaluation.material.prompts import require_given_back
from ropewalk.evaluation.material.subject import Subject
from ropewalk.evaluation.material.words import compound
from ropewalk.evaluation.metrics.intervals import LOSS, Estimate, means, share
from ropewalk.evaluation.tasks.retrieval import Retrieval
from ropewalk.hf import score_tokens
from ropewalk.record import AT_LEAST_ONE
from ropewalk.spec import Json

FACT = "The content of register {name} is {content}.\n"
ASKED = "What is the content of register {name}? The content of register {name} is"


class StreamFact(NamedTuple):
    """What a line tells."""

    name: str
    content: str


class EvalStream(NamedTuple):
    """What is read, and the tokens in it that answer a question."""

    ids: tuple[int, ...]
    answers: tuple[slice, ...]


class StreamText(NamedTuple):
    """A stream as text, and the characters in it that answer a question."""

    text: str
    answers: tuple[slice, ...]


@dataclass(frozen=True, kw_only=True)
class StreamEval(Retrieval):
    name: ClassVar[str] = "stream"
    every: Annotated[int, AT_LEAST_ONE, "lines between two questions"] = 10
    back: Annotated[int, AT_LEAST_ONE, "lines from a question back to what it asks for"] = 20

    def measure(self, subject: Subject, length: int, sample: int) -> Json:
        """One stream, read once."""
        stream = self.prompt(subject, length, sample)
        said = score_tokens(subject.model, torch.tensor([stream.ids], device=subject.model.device))
        # The first token is judged by nothing: what is said of token n stands at n - 1.
        spans = [slice(each.start - 1, each.stop - 1) for each in stream.answers]
        return {
            "right": [bool(said.hits[0, span].all()) for span in spans],
            "loss": sum(float(said.losses[0, span].double().mean()) for span in spans) / len(spans),
            "places": [each.start for each in stream.answers],
        }

    def prompt(self, subject: Subject, length: int, sample: int) -> EvalStream:
        """The stream of a sample, cut after so many tokens: the same for every extension."""
        if not subject.tokenizer.is_fast:
            raise DoesNotFit("tokenizer", "a fast one, which tells where its tokens stand", type(subject.tokenizer))
        rounds, ids = self.back // self.every + 1, list[int]()
        while len(ids) < length:
            rounds *= 2
            told = self._told(self.chance(subject, length, sample), rounds)
            read = subject.tokenizer(told.text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
            ids = read["input_ids"]
        require_given_back(subject.tokenizer, ids, told.text)
        answers = [_tokens_of(each, read["offset_mapping"]) for each in told.answers]
        if answers[0].stop > length:
            raise DoesNotFit("length", f"at least {answers[0].stop}, where the first question is answered", length)
        return EvalStream(tuple(ids[:length]), tuple(each for each in answers if each.stop <= length))

    def _told(self, random: Random, rounds: int) -> StreamText:
        """So many rounds of facts and a question; the beginning does not depend on how many there are."""
        facts, text, answers = list[StreamFact](), io.StringIO(), list[slice]()
        for _ in range(rounds):
            for _ in range(self.every):
                facts.append(_fact(random, facts[-2 * self.back :]))
                text.write(FACT.format(**facts[-1]._asdict()))
            if len(facts) >= self.back:
                asked = facts[-self.back]
                begin = text.tell() + text.write(ASKED.format(name=asked.name))
                text.write(f" {asked.content}\n")
                answers.append(slice(begin, text.tell() - 1))
        return StreamText(text.getvalue(), tuple(answers))

    def condense(self, results: Sequence[Json]) -> dict[str, Estimate]:
        """Shares of all questions of all streams, and the loss of their answers."""
        right = [each for one in results for each in one["right"]]
        late = [each for one in results for each in one["right"][len(one["right"]) // 2 :]]
        return {
            "right": share(sum(right), len(right)),
            "late": share(sum(late), len(late)),
            **means(results, loss=LOSS),
        }


def _fact(random: Random, told: Sequence[StreamFact]) -> StreamFact:
    """A register and its content, neither of which was told of late."""
    known = {word for fact in told for word in fact}
    while True:
        name, content = compound(random), str(random.randrange(10_000, 100_000))
        if name not in known and content not in known:
            return StreamFact(name, content)


def _tokens_of(characters: slice, offsets: Sequence[tuple[int, int]]) -> slice:
    """The tokens that these characters are, and nothing else."""
    begin = bisect_right(offsets, characters.start, key=lambda each: each[1])
    end = bisect_left(offsets, characters.stop, key=lambda each: each[0])
    if offsets[begin][0] < characters.start or offsets[end - 1][1] > characters.stop:
        raise DoesNotFit("answer", "tokenised after the question as it is alone", offsets[begin])
    return slice(begin, end)
