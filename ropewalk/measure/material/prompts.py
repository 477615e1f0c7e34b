"""Prompts of an exact number of tokens. What is hidden stands between two lines of filler.

In text with few line breaks it stands between two words, else it would be far from its depth.

A prompt is built as text and tokenised once, like a user's. The beginning of the filler is cut, character by character,
until the prompt and its answer have the exact length. A tokenizer that does not decode to the same text (apart from
white space) is refused: the hidden text might be lost.
"""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from transformers import PreTrainedTokenizerBase

from ropewalk.errors import DoesNotFit
from ropewalk.hf.checkpoint.tokens import begin_tokens

LEAST_FILLER = 8  # tokens; fewer cannot always be filled exactly
FAR_LINE, FAR_SHARE = 256, 1 / 20  # characters, or a share of the text: so far from its depth may a line begin
SIZES_AROUND = 200  # characters around the largest size that fits, where an exact one is searched


class Prompt(NamedTuple):
    """What a model reads, and what it should write then."""

    text: str
    answer: str
    ids: tuple[int, ...]
    answer_ids: tuple[int, ...]

    @property
    def length(self) -> int:
        """Tokens of the prompt and of its answer."""
        return len(self.ids) + len(self.answer_ids)


class HiddenLines(NamedTuple):
    """Lines to hide in filler, and the depth: 0 is its beginning, 1 its end."""

    text: str
    depth: float


class GrowingPrompt(NamedTuple):
    """A prompt that grows with a number: of characters of filler, or of larger units."""

    text: Callable[[int], str]
    answer: str
    spare: int = 0  # tokens that are reserved for what the model writes, if that may exceed the answer
    in_units: bool = False
    most: int = sys.maxsize  # the largest number


class FilledPrompt(NamedTuple):
    """A prompt of an exact length, and how many units it has."""

    prompt: Prompt
    size: int


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
    """Filler around a needle, the question, and room for the answer: `length` tokens in total."""
    key = answer.strip()
    clean = drop_lines(filler, [key])

    def text(size: int) -> str:
        return scatter(clean, [HiddenLines(needle, depth)], size) + question

    prompt = fit_prompt(tokenizer, GrowingPrompt(text, answer, spare), length)
    require_count(prompt, {key: needle.count(key)})
    return prompt


def drop_lines(filler: str, words: Iterable[str]) -> str:
    """The lines of the filler that contain none of these words."""
    clean = "".join(line for line in filler.splitlines(keepends=True) if not any(word in line for word in words))
    if not clean:
        raise DoesNotFit("filler", "lines without the answer", ", ".join(words))
    return clean


def scatter(filler: str, hidden: Sequence[HiddenLines], size: int) -> str:
    """`size` characters of filler, repeated if necessary, with the hidden lines between its lines."""
    around = (filler * (size // len(filler) + 1))[-size:] if size else ""
    ordered = sorted(hidden, key=lambda line: line.depth)
    places = [_place_near(around, round(line.depth * size)) for line in ordered]
    parts = [around[begin:end] for begin, end in pairwise([0, *places, len(around)])]
    return "".join(_end_line(part) + line.text for part, line in zip(parts, ordered, strict=False)) + parts[-1]


def _end_line(part: str) -> str:
    """With a line break at the end, so that what follows is a line of its own."""
    return f"{part}\n" if part and not part.endswith("\n") else part


def require_count(prompt: Prompt, times: dict[str, int]) -> None:
    """Refuse a prompt that contains an answer too often, or not at all."""
    for word, count in times.items():
        if prompt.text.count(word) != count:
            sentence = f"the prompt must contain the answer {word!r} {count} times, not {prompt.text.count(word)}"
            raise DoesNotFit.because("needle", sentence, remedy="take another corpus")


def fit_prompt(tokenizer: PreTrainedTokenizerBase, growing: GrowingPrompt, length: int) -> Prompt:
    """The size at which prompt and answer fill the length exactly, or the largest one that fits."""
    size = _size(tokenizer, growing, length)
    return tokenise_prompt(tokenizer, growing.text(size), growing.answer)


def fill_prompt(tokenizer: PreTrainedTokenizerBase, growing: GrowingPrompt, length: int, filler: str) -> FilledPrompt:
    """As many units as fit, and before them as much filler as fills the tokens that are left.

    growing = GrowingPrompt(lambda count: "one more line\n" * count + "How many lines?", " 12")
    fill_prompt(tokenizer, growing, 100, "Any text.")  # 100 tokens with the answer
    """
    size = _size(tokenizer, growing._replace(in_units=True), length)
    room = length - _room(tokenizer, growing) - len(_ids(tokenizer, growing.text(size)))
    size -= 0 < room < LEAST_FILLER and size > 0

    def text(characters: int) -> str:
        return (f"{filler[:characters]}\n\n" if characters else "") + growing.text(size)

    whole = growing._replace(text=text, in_units=False, most=sys.maxsize)
    return FilledPrompt(fit_prompt(tokenizer, whole, length), size)


def _size(tokenizer: PreTrainedTokenizerBase, growing: GrowingPrompt, length: int) -> int:
    """The size that fills the length; an error if the prompt does not fit, or cannot grow enough."""

    def used(size: int) -> int:
        return len(_ids(tokenizer, growing.text(size)))

    written = _room(tokenizer, growing)
    least = used(0) + written
    if least > length:
        raise DoesNotFit("length", f"at least {least}, for the prompt without filler", length)
    size = _fullest(used, length - written, growing)
    if size == growing.most and used(size) + written < length:
        remedy = "give more documents, or a shorter length"
        raise DoesNotFit("text to hide in", f"enough for {length} tokens", used(size) + written, remedy=remedy)
    return size


def _room(tokenizer: PreTrainedTokenizerBase, growing: GrowingPrompt) -> int:
    """Tokens that are reserved for what the model writes."""
    prompt = growing.text(0)
    return max(growing.spare, len(_ids(tokenizer, prompt + growing.answer)) - len(_ids(tokenizer, prompt)))


def tokenise_prompt(tokenizer: PreTrainedTokenizerBase, text: str, answer: str) -> Prompt:
    """Prompt and answer as tokens, tokenised together."""
    ids, whole = _ids(tokenizer, text), _ids(tokenizer, text + answer)
    if whole[: len(ids)] != ids:  # else no model could write the answer
        sentence = f"the tokenizer joins the end of the prompt and the answer {answer!r} in one token"
        raise DoesNotFit.because("answer", sentence, remedy="take another tokenizer")
    require_round_trip(tokenizer, whole, text + answer)
    return Prompt(text, answer, tuple(ids), tuple(whole[len(ids) :]))


def require_round_trip(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int], text: str) -> None:
    """Refuse a tokenizer that does not decode to the same text; the tokens that begin every text are left out."""
    got = str(tokenizer.decode(list(ids[len(begin_tokens(tokenizer)) :])))
    if _letters(got) != _letters(text):
        raise DoesNotFit("tokenizer", "one that decodes to the same text", _difference(got, text))


def tokens_with_offsets(tokenizer: PreTrainedTokenizerBase, text: str) -> tuple[list[int], list[tuple[int, int]]]:
    """The tokens of a text, and the characters of each; a tokenizer that does not know them is refused.

    The tokens that begin every text come first, and are of no characters.
    """
    if not tokenizer.is_fast:
        raise DoesNotFit("tokenizer", "a fast one, which knows the characters of each token", type(tokenizer))
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    begin = begin_tokens(tokenizer)
    return [*begin, *encoded["input_ids"]], [*((0, 0) for _ in begin), *encoded["offset_mapping"]]


def tokens_of(characters: slice, offsets: Sequence[tuple[int, int]]) -> slice:
    """The tokens that are exactly these characters.

    tokens_of(slice(3, 5), [(0, 3), (3, 5), (5, 6)])    # slice(1, 2)
    """
    begin = bisect_right(offsets, characters.start, key=lambda offset: offset[1])
    end = bisect_left(offsets, characters.stop, key=lambda offset: offset[0])
    if offsets[begin][0] < characters.start or offsets[end - 1][1] > characters.stop:
        sentence = f"the tokenizer joins the answer and the question in the token at {offsets[begin]}"
        raise DoesNotFit.because("answer", sentence, remedy="take another tokenizer")
    return slice(begin, end)


def _letters(text: str) -> str:
    """Without white space, which some tokenizers add or remove."""
    return "".join(text.split())


def _difference(got: str, expected: str) -> str:
    """The first words that differ."""
    pairs = zip(got.split(), expected.split(), strict=False)
    return next((f"{a} for {b}" for a, b in pairs if a != b), f"{len(got)} characters for {len(expected)}")


def _fullest(used: Callable[[int], int], room: int, growing: GrowingPrompt) -> int:
    """The size that fills the room; tokens grow with characters, but not one by one."""
    low, high = 0, 1
    while high <= growing.most and used(high) <= room:
        low, high = high, 2 * high
    low = _between(used, room, low, min(high, growing.most + 1))
    if growing.in_units or used(low) == room:
        return low
    near = sorted(range(max(0, low - SIZES_AROUND), low + SIZES_AROUND), key=lambda size: abs(size - low))
    exact = next((size for size in near if used(size) == room), None)
    return low if exact is None else exact


def _between(used: Callable[[int], int], room: int, low: int, high: int) -> int:
    """A size that fills the room, or the largest that fits, between one that fits and one that does not.

    The number of tokens is nearly proportional to the size, so proportional guesses are soon right. Every other guess
    is the middle, so that progress is never slow.
    """
    fits, over, guessing = used(low), room + 1, False
    while high - low > 1 and fits < room:
        guess = low + round((room - fits) / (over - fits) * (high - low)) if guessing else (low + high) // 2
        size, guessing = min(max(guess, low + 1), high - 1), not guessing
        count = used(size)
        low, fits, high, over = (size, count, high, over) if count <= room else (low, fits, size, count)
    return low


def _place_near(text: str, at: int) -> int:
    """The start of a line near a place; of a word where no line begins near; else the place itself."""
    far = max(FAR_LINE, round(FAR_SHARE * len(text)))
    starts = (_start_near(text, at, mark) for mark in ("\n", " "))
    return next((start for start in starts if abs(start - at) <= far), at)


def _start_near(text: str, at: int, mark: str) -> int:
    """What is nearest to a place: the character after a mark, or an end of the text."""
    before, after = text.rfind(mark, 0, at) + 1, text.find(mark, at) + 1 or len(text)
    return before if at - before <= after - at else after


def _ids(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """The tokens of a text, after those that begin every text; none that end one."""
    return [*begin_tokens(tokenizer), *tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]]
