"""vt, variable tracking: a chain of assignments in noise; which variables have the value of the first?

    VAR A = 12345 ... VAR B = VAR A ... VAR C = VAR B ...

One chain of four hops, after a solved example with shorter names.

Source: Hsieh et al. 2024, arXiv:2404.06654, sec. 3, with RULER's wording. Deviations: every assignment is a
line, at a random depth, and the example has one line of noise before each, none below SHORT_CONTEXT tokens.
"""

from __future__ import annotations

import string
from random import Random

from ropewalk.measure.material.prompts import GrowingPrompt, HiddenLines, scatter
from ropewalk.measure.tasks.ruler.puzzle import NOISE, Puzzle, PuzzleMaterial

TASK = "Memorize and track the chain(s) of variable assignment hidden in the following text.\n\n"
QUESTION = (
    "\nQuestion: Find all variables that are assigned the value {value} in the text above."
    " Answer: According to the chain(s) of variable assignment in the text above,"
    " {count} variables are assigned the value {value}, they are:"
)
HOPS, NAME_LETTERS, EXAMPLE_LETTERS = 4, 5, 3
TRACKING_REPLY = 30
SHORT_CONTEXT = 2048


def tracking(material: PuzzleMaterial) -> Puzzle:
    """A chain; the answers are the names of its variables."""
    random = material.random
    example = _example(random, noise=material.length >= SHORT_CONTEXT)
    names, value = _names(random, NAME_LETTERS), _value(random)
    depths = sorted(random.random() for _ in names)
    hidden = [HiddenLines(line, depth) for line, depth in zip(_chain(names, value), depths, strict=True)]
    question = QUESTION.format(value=value, count=len(names))

    def text(size: int) -> str:
        return example + TASK + scatter(NOISE, hidden, size) + question

    return Puzzle(
        GrowingPrompt(text, _answer(names), TRACKING_REPLY),
        tuple(names),
        TRACKING_REPLY,
        once=(f"VAR {names[0]} = {value}\n",),
    )


def _example(random: Random, *, noise: bool) -> str:
    names, value = _names(random, EXAMPLE_LETTERS), _value(random)
    lines = "".join((NOISE if noise else "") + line for line in _chain(names, value))
    return f"{TASK}{lines}{QUESTION.format(value=value, count=len(names))}{_answer(names)}\n\n"


def _chain(names: list[str], value: str) -> list[str]:
    origins = [value, *(f"VAR {name}" for name in names)]
    return [f"VAR {name} = {origin}\n" for name, origin in zip(names, origins, strict=False)]


def _names(random: Random, letters: int) -> list[str]:
    """All different."""
    names: dict[str, None] = {}
    while len(names) <= HOPS:
        names["".join(random.choices(string.ascii_uppercase, k=letters))] = None
    return list(names)


def _value(random: Random) -> str:
    return str(random.randrange(10_000, 100_000))


def _answer(names: list[str]) -> str:
    return " " + " ".join(names)
