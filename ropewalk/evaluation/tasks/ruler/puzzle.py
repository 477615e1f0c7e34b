"""What the thirteen kinds of RULER have in common: material to make a puzzle of, and the puzzle."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from ropewalk.evaluation.material.prompts import GrowingPrompt, Prompt

NOISE = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again.\n"


class PuzzleMaterial(NamedTuple):
    """What a puzzle is made of."""

    random: Random
    length: int  # tokens of the prompt and of what is written after it
    text: Callable[[], str]  # held-out text, begun anywhere
    tokens: Callable[[str], int]  # how many a text has
    questions: str | None  # a file of questions


class Puzzle(NamedTuple):
    """A prompt that grows, and what is to be found in what the model writes."""

    growing: GrowingPrompt
    answers: tuple[str, ...]
    writes: int  # tokens within which the answers have to come
    any_of: bool = False  # one answer in several wordings, instead of several answers
    once: tuple[str, ...] = ()  # what the prompt must say once

    def tokens(self, prompt: Prompt) -> int:
        """How many the model may write: RULER's number, or as many as the answers have."""
        return max(self.writes, len(prompt.answer_ids))


Maker = Callable[[PuzzleMaterial], Puzzle]
