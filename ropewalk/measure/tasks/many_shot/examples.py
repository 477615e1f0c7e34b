"""Examples of a made-up rule: inputs of two words, the second of which decides the label."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import NamedTuple

from ropewalk.measure.material.secrets import ADJECTIVES, NOUNS
from ropewalk.methods.record import Rule

MOST_LABELS = 90  # numbers of two digits
LABELS = Rule(f"from 2 to {MOST_LABELS}", lambda value: 2 <= value <= MOST_LABELS)
TASK = "Use the provided mapping from the text to label to assign a label to the text.\n\n"


class Example(NamedTuple):
    """An input with its label."""

    text: str
    label: str

    @property
    def question(self) -> str:
        """The input, up to where its label begins."""
        return f"{self.text}\nlabel:"

    def __str__(self) -> str:
        return f"{self.question} {self.label}\n\n"


def label_of(random: Random, count: int) -> dict[str, str]:
    """A rule: the label of each of `count` nouns."""
    labels = random.sample(range(10, 100), count)
    return dict(zip(random.sample(NOUNS, count), map(str, labels), strict=True))


def example(random: Random, rule: Mapping[str, str], noun: str, but: str = "") -> Example:
    """An input with this noun; `but` is an input that must not come twice."""
    adjective = random.choice([word for word in ADJECTIVES if f"{word} {noun}" != but])
    return Example(f"{adjective} {noun}", rule[noun])
