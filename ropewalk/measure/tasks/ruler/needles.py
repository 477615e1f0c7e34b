"""The eight kinds of needles: keys with values in noise, text or other needles; a question asks for some of them.

| kind | hidden in | keys | values of a key | asked for |
|---|---|---|---|---|
| niah_single_1, 2, 3 | noise, text, text | 1 | 1; a uuid in the third | 1 |
| niah_multikey_1, 2, 3 | text, needles, needles | 4, 1, 1 | 1; uuids for uuids in the third | 1 |
| niah_multivalue | text | 1 | 4 | 1 |
| niah_multiquery | text | 4 | 1 | 4 |

Source: Hsieh et al. 2024, arXiv:2404.06654, sec. 3 and app. B, with RULER's wording. Deviations: text is held-out
text instead of essays, needles stand between its lines, and it is cut to the exact length.
"""

from __future__ import annotations

from random import Random
from typing import Literal, NamedTuple
from uuid import UUID

from ropewalk.measure.material.prompts import GrowingPrompt, HiddenLines, drop_lines, scatter
from ropewalk.measure.material.secrets import compound
from ropewalk.measure.tasks.ruler.puzzle import NOISE, Maker, Puzzle, PuzzleMaterial

FACT = "One of the special magic {what} for {key} is: {value}.\n"
SEVERAL = (
    "Some special magic {what} are hidden within the following text. Make sure to memorize it."
    " I will quiz you about the {what} afterwards.\n",
    "\nWhat are all the special magic {what} for {keys} mentioned in the provided text?"
    " The special magic {what} for {keys} mentioned in the provided text are",
)
ONE = (
    "A special magic {what} is hidden within the following text. Make sure to memorize it."
    " I will quiz you about the {what} afterwards.\n",
    "\nWhat is the special magic {what} for {keys} mentioned in the provided text?"
    " The special magic {what} for {keys} mentioned in the provided text is",
)
DEPTHS = 40  # possible places, from the beginning of the text to its end
NEEDLES_REPLY = 128
SHORTEST_LINE = 8  # tokens; no needle is shorter under any tokenizer

Content = Literal["words", "numbers", "uuids"]


class NeedleKind(NamedTuple):
    """One kind."""

    hidden_in: Literal["noise", "text", "needles"]
    keys: int = 1
    values: int = 1
    asked: int = 1
    key: Content = "words"
    value: Content = "numbers"

    def puzzle(self, material: PuzzleMaterial) -> Puzzle:
        """Hidden keys with values, and a question for some of them."""
        random = material.random
        pairs = {
            _new(random, self.key): [_new(random, self.value) for _ in range(self.values)] for _ in range(self.keys)
        }
        chosen = random.sample(sorted(pairs), self.asked)
        answers = tuple(value for key in chosen for value in pairs[key])
        facts = [_line(self.value, key, value) for key, values in pairs.items() for value in values]
        depths = random.sample(range(DEPTHS), len(facts))
        hidden = [HiddenLines(fact, depth / (DEPTHS - 1)) for fact, depth in zip(facts, depths, strict=True)]
        values = tuple(value for listed in pairs.values() for value in listed)
        filler = drop_lines(self._filler(material), [*pairs, *values])
        before, after = self._words(chosen)

        def text(size: int) -> str:
            return before + scatter(filler, hidden, size) + after

        return Puzzle(GrowingPrompt(text, " " + ", ".join(answers), NEEDLES_REPLY), answers, NEEDLES_REPLY, once=values)

    def _words(self, chosen: list[str]) -> tuple[str, str]:
        """The instruction before the text, and the question after it."""
        one = self.asked * self.values == 1
        names = {"what": self.value[:-1] if one else self.value, "keys": _list_keys(chosen)}
        before, after = ONE if one else SEVERAL
        return before.format(**names), after.format(**names)

    def _filler(self, material: PuzzleMaterial) -> str:
        if self.hidden_in == "text":
            return material.text()
        if self.hidden_in == "noise":
            return NOISE
        random, count = material.random, material.length // SHORTEST_LINE + 1
        return "".join(_line(self.value, _new(random, self.key), _new(random, self.value)) for _ in range(count))


def _line(what: Content, key: str, value: str) -> str:
    return FACT.format(what=what, key=key, value=value)


def _new(random: Random, content: Content) -> str:
    if content == "words":
        return compound(random)
    return (
        str(random.randrange(10**6, 10**7))
        if content == "numbers"
        else str(UUID(int=random.getrandbits(128), version=4))
    )


def _list_keys(keys: list[str]) -> str:
    return keys[0] if len(keys) == 1 else ", ".join(keys[:-1]) + ", and " + keys[-1]


KINDS: dict[str, Maker] = {
    "niah_single_1": NeedleKind("noise").puzzle,
    "niah_single_2": NeedleKind("text").puzzle,
    "niah_single_3": NeedleKind("text", value="uuids").puzzle,
    "niah_multikey_1": NeedleKind("text", keys=4).puzzle,
    "niah_multikey_2": NeedleKind("needles").puzzle,
    "niah_multikey_3": NeedleKind("needles", key="uuids", value="uuids").puzzle,
    "niah_multivalue": NeedleKind("text", values=4).puzzle,
    "niah_multiquery": NeedleKind("text", keys=4, asked=4).puzzle,
}
