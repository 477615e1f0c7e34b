"""Prompts of an exact number of tokens: a needle stands between two lines of filler, never within one.

A prompt is put together as text and tokenised once, as a user's would be. Filler is cut at its beginning, character by
character, until the prompt and its answer have the length that was asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from transformers import PreTrainedTokenizerBase

from ropewalk.errors import DoesNotFit

NEAR = 48  # characters around the largest size that fits among which an exact one is looked for


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


def with_needle(
    tokenizer: PreTrainedTokenizerBase,
    *,
    filler: str,
    needle: str,
    question: str,
    answer: str,
    depth: float,
    length: int,
) -> Prompt:
    """Filler around a needle, the question, and room for the answer: `length` tokens in all."""
    key = answer.strip()
    clean = "".join(line for line in filler.splitlines(keepends=True) if key not in line)
    if not clean:
        raise DoesNotFit("filler", "lines without the answer", key)

    def put_together(size: int) -> str:
        around = (clean * (size // len(clean) + 1))[-size:] if size else ""
        at = _line_near(around, round(depth * size))
        return around[:at] + needle + around[at:] + question

    prompt = fitted(tokenizer, put_together, answer, length)
    if prompt.text.count(key) != needle.count(key):
        raise DoesNotFit("needle", "all there is of the answer in the prompt", key)
    return prompt


def fitted(tokenizer: PreTrainedTokenizerBase, put_together: Callable[[int], str], answer: str, length: int) -> Prompt:
    """Of prompts that grow with a number, the one that fills a length together with its answer, or the fullest."""
    answer_ids = _ids(tokenizer, answer)
    room = length - len(answer_ids)

    def used(size: int) -> int:
        return len(_ids(tokenizer, put_together(size)))

    if used(0) > room:
        least = used(0) + len(answer_ids)
        raise DoesNotFit("length", f"at least {least}, what the prompt needs without filler", length)
    text = put_together(_fullest(used, room))
    if _ids(tokenizer, text + answer)[-len(answer_ids) :] != answer_ids:  # else nobody could write it
        raise DoesNotFit("answer", "tokenised after the prompt as it is alone", answer)
    return Prompt(text, answer, tuple(_ids(tokenizer, text)), tuple(answer_ids))


def _fullest(used: Callable[[int], int], room: int) -> int:
    """The size that uses all room; tokens grow with characters, but not one by one."""
    low, high = 0, 1
    while used(high) <= room:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if used(middle) <= room else (low, middle)
    if used(low) == room:
        return low
    near = range(max(0, low - NEAR), low + NEAR)
    return max((size for size in near if used(size) <= room), key=used)


def _line_near(text: str, at: int) -> int:
    """The beginning of a line that is nearest to a place, or one of the text's ends."""
    before, after = text.rfind("\n", 0, at) + 1, text.find("\n", at) + 1 or len(text)
    return before if at - before <= after - at else after


def _ids(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    ids: list[int] = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    return ids
