"""cwe, common words: a numbered list in which ten words are far more frequent than the others; which are they?

| length | common words | times | other words, times | example |
|---|---|---|---|---|
| from 4,096 | 10 | 30 | 3 | 40 words, 10 and 3 times |
| from 2,048 | 10 | 6 | 1 | 20 words, 3 and 1 times |
| below | 5 | 4 | 1 | none |

If a row does not fit, because a tokenizer makes many tokens, the next one is taken.

Source: Hsieh et al. 2024, arXiv:2404.06654, sec. 3, with RULER's wording and its numbers; there the second row is for
all lengths below 4,096, where it often does not fit. Deviations: words are compounds, of which there are more than
nouns, and the order is drawn for each sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from ropewalk.measure.material.prompts import GrowingPrompt
from ropewalk.measure.material.secrets import COMPOUNDS, compounds
from ropewalk.measure.tasks.ruler.puzzle import Puzzle, PuzzleMaterial

TASK = (
    "Below is a numbered list of words. In these words, some appear more often than others."
    " Memorize the ones that appear most often.\n"
)
QUESTION = (
    "\nQuestion: What are the {count} most common words in the above list?"
    " Answer: The top {count} words that appear most often in the list are:"
)
COMMON_WORDS_REPLY = 120


class ListSize(NamedTuple):
    """How often words occur in a list."""

    shortest: int  # tokens of a prompt
    common: int  # how many words are common
    often: int
    seldom: int
    example: tuple[int, int, int] | None  # other words, and how often common and other words occur


SIZES = (
    ListSize(4096, 10, 30, 3, (30, 10, 3)),
    ListSize(2048, 10, 6, 1, (10, 3, 1)),
    ListSize(0, 5, 4, 1, None),
)


def common_words(material: PuzzleMaterial) -> Puzzle:
    """The largest list that fits; it grows by other words."""
    order, words = material.random.random(), compounds(material.random, COMPOUNDS)
    for size in SIZES:
        puzzle = _puzzle_of_size(size, words, order)
        least = material.tokens(puzzle.growing.text(0)) + COMMON_WORDS_REPLY
        if max(least, size.shortest) <= material.length:
            break
    return puzzle


def _puzzle_of_size(size: ListSize, words: list[str], order: float) -> Puzzle:
    common, others = words[: size.common], words[size.common :]
    question = QUESTION.format(count=size.common)
    example = "" if size.example is None else _example(Random(order), size.common, *size.example)

    def text(count: int) -> str:
        listed = [*common * size.often, *others[:count] * size.seldom]
        return example + TASK + _list(listed, Random(f"{order}/{count}")) + question

    growing = GrowingPrompt(text, _answer(common), COMMON_WORDS_REPLY, in_units=True, most=len(others))
    return Puzzle(growing, tuple(common), COMMON_WORDS_REPLY)


def _example(random: Random, common: int, other: int, often: int, seldom: int) -> str:
    words = compounds(random, common + other)
    listed = words[:common] * often + words[common:] * seldom
    return TASK + _list(listed, random) + QUESTION.format(count=common) + _answer(words[:common]) + "\n"


def _list(words: Sequence[str], random: Random) -> str:
    mixed = random.sample(words, len(words))
    return " ".join(f"{number}. {word}" for number, word in enumerate(mixed, 1))


def _answer(words: Sequence[str]) -> str:
    return "".join(f" {number}. {word}" for number, word in enumerate(words, 1))
