"""RULER: thirteen kinds of puzzles of any length, from one needle in noise to questions about many documents.

The prompt of a kind grows, in characters of filler, in words or in documents, until it fills the length together with
what the model may write. The score is the share of answers in what the model writes, ignoring case; 1 or 0 where an
answer has several wordings. As in RULER, the question ends with the beginning of the answer, so that base models can
continue it. The loss of the listed answers is stored too.

Source: Hsieh et al. 2024, arXiv:2404.06654; each kind's file lists its deviations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, NamedTuple, get_args

from ropewalk.measure.material.prompts import Prompt, fit_prompt, require_count
from ropewalk.measure.material.subject import Subject
from ropewalk.measure.tasks.answers import match_all, match_any, score_answer, write_answer
from ropewalk.measure.tasks.retrieval import Retrieval
from ropewalk.measure.tasks.ruler import needles
from ropewalk.measure.tasks.ruler.common_words import common_words
from ropewalk.measure.tasks.ruler.frequent_words import frequent_words
from ropewalk.measure.tasks.ruler.puzzle import Maker, Puzzle, PuzzleMaterial
from ropewalk.measure.tasks.ruler.questions import about_one, about_several, mark_of
from ropewalk.measure.tasks.ruler.tracking import tracking
from ropewalk.measure.tasks.task import Task
from ropewalk.methods.spec import Json

Kind = Literal[
    "niah_single_1",
    "niah_single_2",
    "niah_single_3",
    "niah_multikey_1",
    "niah_multikey_2",
    "niah_multikey_3",
    "niah_multivalue",
    "niah_multiquery",
    "vt",
    "cwe",
    "fwe",
    "qa_1",
    "qa_2",
]
KINDS: Mapping[str, Maker] = {
    **needles.KINDS,
    "vt": tracking,
    "cwe": common_words,
    "fwe": frequent_words,
    "qa_1": about_one,
    "qa_2": about_several,
}
OF_DOCUMENTS = ("qa_1", "qa_2")


class PosedPuzzle(NamedTuple):
    """A puzzle, and its prompt."""

    puzzle: Puzzle
    prompt: Prompt


@dataclass(frozen=True, kw_only=True)
class Ruler(Retrieval):
    name: ClassVar[str] = "ruler"
    headline: ClassVar[str] = "score"
    shares: ClassVar[tuple[str, ...]] = ("score", "right")
    kind: Annotated[Kind, "one of the thirteen"]
    questions: Annotated[str | None, "for qa_1 and qa_2: JSON lines with question, answers and context"] = None

    @property
    def title(self) -> str:
        """The kind."""
        return self.kind

    @classmethod
    def named(cls, values: Json) -> tuple[Task, ...]:
        """The kind that is named; without a name, every kind (qa_1 and qa_2 only with questions)."""
        if "kind" in values:
            return super().named(values)
        kinds = [kind for kind in get_args(Kind) if values.get("questions") or kind not in OF_DOCUMENTS]
        return tuple(task for kind in kinds for task in super(Ruler, cls).named(values | {"kind": kind}))

    def identity(self, sample: int) -> Json:
        """With a hash of the questions instead of their path."""
        questions = self.questions and mark_of(self.questions)
        return super().identity(sample) | {"questions": questions}

    def measure(self, subject: Subject, length: int, sample: int) -> Json:
        """One prompt."""
        puzzle, prompt = self.posed(subject, length, sample)
        score_of = match_any if puzzle.any_of else match_all
        text = write_answer(subject, prompt, puzzle.tokens(prompt), lambda reply: score_of(reply, puzzle.answers) == 1)
        score = score_of(text, puzzle.answers)
        return {"score": score, "right": score == 1, "loss": score_answer(subject, prompt).loss, "wrote": text}

    def prompt(self, subject: Subject, length: int, sample: int) -> Prompt:
        """The prompt of a sample: the same for every extension."""
        return self.posed(subject, length, sample).prompt

    def posed(self, subject: Subject, length: int, sample: int) -> PosedPuzzle:
        """The puzzle of a sample, and its prompt."""
        random = self.chance(subject, length, sample)
        material = PuzzleMaterial(random, length, lambda: subject.filler(random), subject.tokens, self.questions)
        puzzle = KINDS[self.kind](material)
        prompt = fit_prompt(subject.tokenizer, puzzle.growing, length)
        require_count(prompt, dict.fromkeys(puzzle.once, 1))
        return PosedPuzzle(puzzle, prompt)
