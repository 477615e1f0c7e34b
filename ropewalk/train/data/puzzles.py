"""Synthetic documents that teach a small model to look back: passkeys, named values, repeated passages.

Each has a length in tokens and is made of filler that the caller brings. Without such documents, early and of many
lengths, a model of a few million parameters does not learn retrieval on a laptop (studies/log.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Annotated, NamedTuple

from ropewalk.errors import InvalidValue
from ropewalk.methods.record import NOT_NEGATIVE, Checked

Encode = Callable[[str], list[int]]
Filler = Callable[[Random, int], list[int]]

SHORTEST_PUZZLE = 64  # tokens of a puzzle
GRASS = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again. "
INTRODUCTION = (
    "There is an important info hidden inside a lot of irrelevant text. Find it and memorize it. "
    "I will quiz you about the important information there.\n"
)
# The hidden fact, and the question for it; {key} is the answer.
WORDINGS = (
    (
        "\nThe pass key is {key}. Remember it. {key} is the pass key.\n",
        "\nWhat is the pass key? The pass key is {key}.",
    ),
    ("\nThe secret number is {key}.\n", "\nQuestion: what is the secret number? Answer: {key}."),
    ("\n# {name} is {key}\n", "\n# what is {name}? {name} is {key}"),
    ("\n{name} = {key}\n", "\nassert {name} == {key}\n"),
    ("\nOne of the special magic numbers for {name} is: {key}.\n", "\nThe special magic number for {name} is: {key}."),
)
Share = Annotated[float, NOT_NEGATIVE, "share of the rows"]
SYLLABLES = tuple("ba co du fe gi ho ju ka le mi no pa qu ro su ta ve wi xo zu".split())  # noqa: SIM905


@dataclass(frozen=True, kw_only=True)
class PuzzleShares(Checked):
    """The shares of puzzles among the rows of a training."""

    passkey: Share = 0.0
    named_values: Share = 0.0
    repeats: Share = 0.0
    recall: Share = 0.0

    def shares(self) -> dict[str, float]:
        """Those above 0, by kind."""
        return {name: share for name, share in vars(self).items() if share}


NO_PUZZLES = PuzzleShares()


class PuzzleMaker(NamedTuple):
    """What puzzles are made from."""

    encode: Encode
    filler: Filler
    vocabulary: int


def number(random: Random, digits: int = 5) -> str:
    """A number of so many digits."""
    return str(random.randrange(10 ** (digits - 1), 10**digits))


def name(random: Random) -> str:
    """A word that means nothing."""
    return "".join(random.choices(SYLLABLES, k=random.randint(2, 4)))


def passkey(maker: PuzzleMaker, random: Random, length: int) -> list[int]:
    """One fact somewhere in filler, and the question for it at the end."""
    hidden, asked = random.choice(WORDINGS)
    blanks = {"key": number(random, random.randint(4, 7)), "name": name(random)}
    fact, question = maker.encode(hidden.format(**blanks)), maker.encode(asked.format(**blanks))
    opening = maker.encode(INTRODUCTION) if length >= 2 * SHORTEST_PUZZLE and random.random() < 0.5 else []
    room = max(0, length - len(opening) - len(fact) - len(question))
    filler, cut = _filler(maker, random, room), round(room * random.betavariate(0.5, 0.5))  # more often near an end
    return [*opening, *filler[:cut], *fact, *filler[cut:], *question][:length]


def named_values(maker: PuzzleMaker, random: Random, length: int) -> list[int]:
    """A list of names with values, then some of them again in another order."""
    wording = random.choice(("{} = {}\n", "{}: {}\n", "register {} has content {}\n"))
    pairs, tokens = [], list[int]()
    while len(tokens) < 0.6 * length:
        pairs.append((name(random), number(random, random.randint(2, 5))))
        tokens += maker.encode(wording.format(*pairs[-1]))
    tokens += maker.encode("\n")
    for pair in random.sample(pairs, len(pairs)):
        tokens += maker.encode(wording.format(*pair))
    return tokens[:length]


def repeats(maker: PuzzleMaker, random: Random, length: int) -> list[int]:
    """A passage of random tokens or of real text, repeated until the length is full."""
    size = random.randint(8, max(8, length // 2))
    passage = (
        maker.filler(random, size) if random.random() < 0.5 else random.choices(range(1, maker.vocabulary), k=size)
    )
    return (passage * (length // size + 1))[:length]


def recall(maker: PuzzleMaker, random: Random, length: int) -> list[int]:
    """Real text, and one passage of it again at the end."""
    text = maker.filler(random, length)
    size = min(random.randint(16, 64), length // 3)
    begin = random.randint(0, length - 2 * size)
    return [*text[: length - size], *text[begin : begin + size]]


def _filler(maker: PuzzleMaker, random: Random, length: int) -> list[int]:
    if random.random() < 0.7:
        return maker.filler(random, length)
    grass = maker.encode(GRASS)
    return (grass * (length // len(grass) + 1))[:length]


KINDS = {"passkey": passkey, "named_values": named_values, "repeats": repeats, "recall": recall}


def pack(maker: PuzzleMaker, kind: str, random: Random, length: int) -> list[list[int]]:
    """Puzzles of one kind and of varied lengths that fill `length` tokens together."""
    if kind not in KINDS:
        raise InvalidValue("puzzle", f"one of {', '.join(KINDS)}", kind)
    puzzles: list[list[int]] = []
    left = length
    while left > 0:
        size = left if left < 2 * SHORTEST_PUZZLE else _size(random, left)
        puzzles.append(KINDS[kind](maker, random, size))
        left -= len(puzzles[-1])
    return puzzles


def _size(random: Random, most: int) -> int:
    """Log-uniform from the shortest to the longest; one in three is the longest."""
    if random.random() < 1 / 3:
        return most
    size = round(SHORTEST_PUZZLE * (most / SHORTEST_PUZZLE) ** random.random())
    return most if most - size < SHORTEST_PUZZLE else size
