"""Prompts of an exact number of tokens: what is hidden stands between two lines of filler, never within one.

A prompt is put together as text and tokenised once, as a user's would be. Filler is cut at its beginning, character by
character, until the prompt and what is to be written after it have the length that was asked for. A tokenizer that does
not give the text back, white space apart, is refused: what was hidden might not be there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from transformers import PreTrainedTokenizerBase

from ropewalk.errors import DoesNotFit

NEAR = 200  # characters around the largest size that fits among which an exact one is looked for


class Prompt(NamedTuple):
    """What a model reads, and what it is to write then."""

    text: str
    answer: str
    ids: tuple[int, ...]
    answer_ids: tuple[int, ...]

    @property
    def length(self) -> int:
        """Tokens of the prompt and of its answer."""
        return len(self.ids) + len(self.answer_ids)


class HiddenLines(NamedTuple):
    """Lines to be hidden in filler, and where: 0 is its beginning, 1 its end."""

    text: str
    depth: float


class GrowingPrompt(NamedTuple):
    """A prompt that grows with a number: of characters of filler, or of larger units, of which there are so many."""

    text: Callable[[int], str]
    answer: str
    spare: int = 0  # tokens that are kept free for what is written, where that may be longer than the answer
    in_units: bool = False
    most: int = sys.maxsize


def with_needle(
    tokenizer: PreTrainedTokenizerBase,
    *,
    filler: str,
    needle: str,
    question: str,
    answer: str,
    depth: float,
    length: int,
    spare: int = 0,
) -> Prompt:
    """Filler around a needle, the question, and room for the answer: `length` tokens in all."""
    key = answer.strip()
    clean = without(filler, [key])

    def put_together(size: int) -> str:
        return scattered(clean, [HiddenLines(needle, depth)], size) + question

    prompt = fitted(tokenizer, GrowingPrompt(put_together, answer, spare), length)
    require_told(prompt, {key: needle.count(key)})
    return prompt


def without(filler: str, words: Iterable[str]) -> str:
    """The lines that have none of these words."""
    kept = "".join(line for line in filler.splitlines(keepends=True) if not any(word in line for word in words))
    if not kept:
        raise DoesNotFit("filler", "lines without the answer", ", ".join(words))
    return kept


def scattered(filler: str, hidden: Sequence[HiddenLines], size: int) -> str:
    """So many characters of filler, as often as that takes, with what is hidden between its lines."""
    around = (filler * (size // len(filler) + 1))[-size:] if size else ""
    ordered = sorted(hidden, key=lambda each: each.depth)
    places = [_line_near(around, round(each.depth * size)) for each in ordered]
    parts = [around[begin:end] for begin, end in pairwise([0, *places, len(around)])]
    return "".join(part + each.text for part, each in zip(parts, ordered, strict=False)) + parts[-1]


def require_told(prompt: Prompt, times: dict[str, int]) -> None:
    """Refuse a prompt that says what is looked for elsewhere too, or not at all."""
    for word, count in times.items():
        if prompt.text.count(word) != count:
            raise DoesNotFit("needle", "all there is of the answer in the prompt", word)


def fitted(tokenizer: PreTrainedTokenizerBase, growing: GrowingPrompt, length: int) -> Prompt:
    """Of prompts that grow with a number, the one that fills a length with what is written after it, or the fullest."""

    def used(size: int) -> int:
        return len(_ids(tokenizer, growing.text(size)))

    least = used(0)
    written = max(growing.spare, len(_ids(tokenizer, growing.text(0) + growing.answer)) - least)
    if least + written > length:
        raise DoesNotFit("length", f"at least {least + written}, what the prompt needs without filler", length)
    size = _fullest(used, length - written, growing)
    if size == growing.most and used(size) + written < length:
        rule, remedy = f"enough for {length} tokens", "name more, or a shorter length"
        raise DoesNotFit("text to hide in", rule, used(size) + written, remedy=remedy)
    return _tokenised(tokenizer, growing.text(size), growing.answer)


def _tokenised(tokenizer: PreTrainedTokenizerBase, text: str, answer: str) -> Prompt:
    """Both as the tokens they are when they stand together."""
    ids, whole = _ids(tokenizer, text), _ids(tokenizer, text + answer)
    if whole[: len(ids)] != ids:  # else nobody could write it
        raise DoesNotFit("answer", "tokenised after the prompt as it is alone", answer)
    require_given_back(tokenizer, whole, text + answer)
    return Prompt(text, answer, tuple(ids), tuple(whole[len(ids) :]))


def require_given_back(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int], text: str) -> None:
    """Refuse a tokenizer whose tokens are not the text."""
    got = str(tokenizer.decode(list(ids)))
    if _letters(got) != _letters(text):
        raise DoesNotFit("tokenizer", "one that gives a text back as it was", _difference(got, text))


def _letters(text: str) -> str:
    """Without white space, which some tokenizers add or take away."""
    return "".join(text.split())


def _difference(got: str, wanted: str) -> str:
    """The first words where two texts part."""
    pairs = zip(got.split(), wanted.split(), strict=False)
    return next((f"{a} for {b}" for a, b in pairs if a != b), f"{len(got)} characters for {len(wanted)}")


def _fullest(used: Callable[[int], int], room: int, growing: GrowingPrompt) -> int:
    """The size that uses all room; tokens grow with characters, but not one by one."""
    low, high = 0, 1
    while high <= growing.most and used(high) <= room:
        low, high = high, 2 * high
    low = _between(used, room, low, min(high, growing.most + 1))
    if growing.in_units or used(low) == room:
        return low
    near = sorted(range(max(0, low - NEAR), low + NEAR), key=lambda size: abs(size - low))
    exact = next((size for size in near if used(size) == room), None)
    return low if exact is None else exact


def _between(used: Callable[[int], int], room: int, low: int, high: int) -> int:
    """A size that uses all room, or the largest that fits, between one that fits and one that does not.

    Tokens grow nearly in proportion, so guesses in proportion are soon right; halving in turn keeps them from creeping.
    """
    fits, over, guessing = used(low), room + 1, False
    while high - low > 1 and fits < room:
        guess = low + round((room - fits) / (over - fits) * (high - low)) if guessing else (low + high) // 2
        size, guessing = min(max(guess, low + 1), high - 1), not guessing
        count = used(size)
        low, fits, high, over = (size, count, high, over) if count <= room else (low, fits, size, count)
    return low


def _line_near(text: str, at: int) -> int:
    """The beginning of a line that is nearest to a place, or one of the text's ends."""
    before, after = text.rfind("\n", 0, at) + 1, text.find("\n", at) + 1 or len(text)
    return before if at - before <= after - at else after


def _ids(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    ids: list[int] = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    return ids
