"""Accuracy by number of shots: examples of a rule fill the length, and each is also a question after those before it.

    amber fox    label: 71    calm bell    label: 23    shiny fox    label: 71    ...

The label of an input depends on its second word alone; labels are drawn freely. The text is read once. An example
counts as right if every token of its label is the likeliest after all before it. `after_8` is the share of right labels
after 8 to 15 examples, and so on by powers of two: a curve that rises as long as the model uses more examples, and
falls where it loses them. The main number is of the second half of the examples. `chance` is 1 / labels.

Protocol: accuracy over numbers of shots is that of Agarwal et al. 2024, arXiv:2404.11018 (many-shot in-context
learning), with HELMET's wording; deviations: the rule is made up, and one text gives all numbers of shots, with the
right labels in it, instead of a prompt for each number.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Annotated, ClassVar

from ropewalk.measure.material.subject import Subject
from ropewalk.measure.metrics.intervals import LOSS, SHARE, Estimate, means, share_of_answers
from ropewalk.measure.tasks.answers import TextWithAnswers, score_answers, text_with_answers
from ropewalk.measure.tasks.many_shot.examples import LABELS, TASK, example, label_of
from ropewalk.measure.tasks.retrieval import Retrieval
from ropewalk.methods.spec import Json


@dataclass(frozen=True, kw_only=True)
class Shots(Retrieval):
    name: ClassVar[str] = "shots"
    labels: Annotated[int, LABELS, "different labels; the shortest text has twice as many examples"] = 4

    def measure(self, subject: Subject, length: int, sample: int) -> Json:
        """One text, read once."""
        scores = score_answers(subject, self.prompt(subject, length, sample))
        late = [score.loss for score in scores[len(scores) // 2 :]]
        return {
            "right": [score.right for score in scores],
            "loss": sum(late) / len(late),
            "chance": 1 / self.labels,
        }

    def prompt(self, subject: Subject, length: int, sample: int) -> TextWithAnswers:
        """The text of a sample, cut to the length: the same for every extension."""

        def write(count: int) -> tuple[str, list[slice]]:
            return self._text(self.chance(subject, length, sample), count)

        fewest = 2 * self.labels
        return text_with_answers(subject.tokenizer, write, fewest, length, fewest=fewest, end=f"{fewest} examples")

    def _text(self, random: Random, count: int) -> tuple[str, list[slice]]:
        """Examples, and which characters are labels; the beginning does not depend on the number of examples."""
        rule, text, labels = label_of(random, self.labels), io.StringIO(), list[slice]()
        nouns = list(rule)
        text.write(TASK)
        for shown in (example(random, rule, random.choice(nouns)) for _ in range(count)):
            begin = text.tell() + text.write(shown.question)
            text.write(f" {shown.label}\n\n")
            labels.append(slice(begin, begin + 1 + len(shown.label)))
        return text.getvalue(), labels

    def condense(self, results: Sequence[Json]) -> dict[str, Estimate]:
        """The share of right labels in the second half, then by the number of examples before."""
        right = [result["right"] for result in results]
        return {
            "right": share_of_answers([hits[len(hits) // 2 :] for hits in right]),
            **_shares_by_shots(right),
            **means(results, loss=LOSS, chance=SHARE),
        }


def _shares_by_shots(results: Sequence[Sequence[bool]]) -> dict[str, Estimate]:
    """The shares of right labels after 0, 1, 2 to 3, 4 to 7, ... examples."""
    numbers, first = dict[str, Estimate](), 0
    while any(hits := [right[first : max(1, 2 * first)] for right in results]):
        numbers[f"after_{first}"] = share_of_answers(hits)
        first = max(1, 2 * first)
    return numbers
