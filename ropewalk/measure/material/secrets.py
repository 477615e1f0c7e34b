"""Numbers that are hidden in a text, and asked for after it has been read.

    The secret number of Oslo is 48213.

One text hides several, so that one reading answers all questions, each from a copy of the cache. Their places are
counted from the end of the text: a shorter text is the end of a longer one, with the secrets that it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from ropewalk.errors import DoesNotFit

CITIES = (
    *("Oslo", "Lima", "Cairo", "Dublin", "Kyoto", "Vienna", "Nairobi", "Havana", "Lisbon", "Quito", "Riga", "Tunis"),
    *("Hanoi", "Bern", "Sofia", "Manila"),
)
LINE, QUESTION = "\nThe secret number of {city} is {key}.\n", "\nThe secret number of {city} is"


class Secret(NamedTuple):
    """One number: where its line begins, counted from the end of the text, and how it is asked for."""

    distance: int  # 1 is the last token
    tokens: int  # of its line
    question: tuple[int, ...]
    answer: tuple[int, ...]


class TextWithSecrets(NamedTuple):
    """A text as long as before: what the secrets take is cut in front."""

    ids_n: Tensor
    secrets: tuple[Secret, ...]

    def within(self, length: int) -> list[Secret]:
        """Those whose whole line is among the last tokens."""
        return [secret for secret in self.secrets if secret.distance <= length]

    def plain(self, last: int) -> Tensor:
        """Which of the last tokens are the text's own [last]."""
        plain = torch.ones(last, dtype=torch.bool)
        for secret in self.secrets:
            first = last - secret.distance
            plain[max(0, first) : max(0, first + secret.tokens)] = False
        return plain


def with_secrets(tokenizer: PreTrainedTokenizerBase, ids_n: Tensor, count: int, random: Random) -> TextWithSecrets:
    """A text with `count` secrets at even depths, fewer where they would take more than half of it.

    Each text draws its numbers and the order of the cities.
    """
    drawn = [_tokens(tokenizer, city, random.randrange(10_000, 100_000)) for city in random.sample(CITIES, count)]
    while 2 * sum(len(line) for line, *_ in drawn) > len(ids_n):
        drawn.pop()
    count, kept_n = len(drawn), ids_n[sum(len(line) for line, *_ in drawn) :]
    secrets, parts, distance, cut = list[Secret](), list[Tensor](), 0, len(kept_n)
    for number, (line, question, answer) in enumerate(drawn):  # from the last one to the first
        place = len(kept_n) - round(len(kept_n) * (number + 0.5) / count)
        parts[:0] = [torch.tensor(line, dtype=ids_n.dtype), kept_n[place:cut]]
        distance, cut = distance + cut - place + len(line), place
        secrets.append(Secret(distance, len(line), question, answer))
    return TextWithSecrets(torch.cat([kept_n[:cut], *parts])[-len(ids_n) :], tuple(secrets))


def _tokens(
    tokenizer: PreTrainedTokenizerBase, city: str, key: int
) -> tuple[Sequence[int], tuple[int, ...], tuple[int, ...]]:
    """The line, the question, and the answer, which begins where the question with it differs from the question."""

    def ids(text: str) -> list[int]:
        return list(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])

    asked, answered = ids(QUESTION.format(city=city)), ids(f"{QUESTION.format(city=city)} {key}")
    same = next((n for n, (a, b) in enumerate(zip(asked, answered, strict=False)) if a != b), len(asked))
    if same < 1 or same == len(answered):
        raise DoesNotFit("tokenizer", "one that writes a question and its answer as more than one token", city)
    return ids(LINE.format(city=city, key=key)), tuple(answered[:same]), tuple(answered[same:])
