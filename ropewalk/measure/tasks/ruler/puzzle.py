"""What RULER's thirteen kinds share: the material of a puzzle, and the puzzle."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from ropewalk.measure.material.prompts import GrowingPrompt, Prompt

NOISE = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again.\n"


class PuzzleMaterial(NamedTuple):
    """What a puzzle is made of."""

    random: Random
    length: int  # tokens of the prompt and of what the model may write
    text: Callable[[], str]  # held-out text from a random line on
    tokens: Callable[[str], int]  # the number of tokens of a text
    questions: str | None  # path of a file of questions


class Puzzle(NamedTuple):
    """A prompt that grows, and its answers."""

    growing: GrowingPrompt
    answers: tuple[str, ...]
    writes: int  # tokens that the model may write
    any_of: bool = False  # the answers are wordings of one answer
    once: tuple[str, ...] = ()  # what the prompt must contain exactly once

    def tokens(self, prompt: Prompt) -> int:
        """How many tokens the model may write: RULER's number, or as many as the answers have."""
        return max(self.writes, len(prompt.answer_ids))


Maker = Callable[[PuzzleMaterial], Puzzle]
