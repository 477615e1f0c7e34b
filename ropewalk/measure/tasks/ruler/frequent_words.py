"""fwe, frequent words: coded words whose counts fall as a power of their rank; which three are the most frequent?

    the k-th word occurs int(N k^-alpha / zeta(alpha)) times among N, alpha = 2; the first is dots, which are noise

Source: Hsieh et al. 2024, arXiv:2404.06654, sec. 3, with RULER's wording; L/50 words for a length of L. Deviation: the
words and their order are drawn for each sample.
"""

from __future__ import annotations

import math
import string
from random import Random

from ropewalk.measure.material.prompts import GrowingPrompt
from ropewalk.measure.tasks.ruler.puzzle import Puzzle, PuzzleMaterial

TASK = (
    "Read the following coded text and track the frequency of each coded word."
    " Find the three most frequently appeared coded words. "
)
QUESTION = (
    "\nQuestion: Do not provide any explanation. Please ignore the dots '....'."
    " What are the three most frequently appeared words in the above coded text?"
    " Answer: According to the coded text above, the three most frequently appeared words are:"
)
DOTS = "...."
WORDS_ASKED, WORD_LETTERS = 3, 6
ZETA = math.pi**2 / 6  # of 2
FEWEST_WORDS = 64  # words: with fewer, the fourth and the fifth would be equally frequent
FREQUENT_WORDS_REPLY = 50


def frequent_words(material: PuzzleMaterial) -> Puzzle:
    """A text that grows by words of all ranks."""
    random = material.random
    words = [DOTS, *_words(random, max(WORDS_ASKED + 1, material.length // 50))]
    order, answers = random.random(), tuple(words[1 : WORDS_ASKED + 1])

    def text(more: int) -> str:
        return TASK + _code_text(words, FEWEST_WORDS + more, Random(f"{order}/{more}")) + QUESTION

    return Puzzle(
        GrowingPrompt(text, " " + ", ".join(answers), FREQUENT_WORDS_REPLY, in_units=True),
        answers,
        FREQUENT_WORDS_REPLY,
    )


def _code_text(words: list[str], count: int, random: Random) -> str:
    coded = [word for rank, word in enumerate(words, 1) for _ in range(int(count / rank**2 / ZETA))]
    random.shuffle(coded)
    return " ".join(coded)


def _words(random: Random, count: int) -> list[str]:
    """Of six letters, all different."""
    words: dict[str, None] = {}
    while len(words) < count:
        words["".join(random.choices(string.ascii_lowercase, k=WORD_LETTERS))] = None
    return list(words)
