"""Next-token accuracy on repeated text: a model that uses far context can copy.

A passage of half the trained length is repeated up to the length, and the last repetition is scored. A method that is
only stable scores as on plain text; one that uses far context approaches 1.

Protocol: Su 2023, kexue.fm/9706, 9708 ("repeated"), there with texts of the trained length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ropewalk.measure.material.subject import Subject
from ropewalk.measure.metrics.intervals import LOSS, SHARE, Estimate, means
from ropewalk.measure.metrics.losses import repeat_texts, token_losses
from ropewalk.measure.tasks.task import Task
from ropewalk.methods.spec import Json


@dataclass(frozen=True, kw_only=True)
class Repetition(Task):
    name: ClassVar[str] = "repetition"
    headline: ClassVar[str] = "accuracy"

    def at(self, lengths: Sequence[int], trained_len: int) -> tuple[int, ...]:
        """The shortest and the longest: lengths between add nothing."""
        return tuple(sorted({min(lengths), max(lengths)}))

    def measure(self, subject: Subject, length: int, sample: int) -> Json:
        """One text."""
        trained = subject.facts.trained_len
        once = subject.passages(self.samples)[sample][None, : max(1, trained // 2)]
        scores = token_losses(subject.model, subject.begun(repeat_texts(once, length)[0], length)[None])
        last = min(trained // 2, length - 1)
        project = subject.projects(self.samples)[sample]
        return {"project": project, "accuracy": scores.accuracy(last), "loss": scores.loss(last)}

    def condense(self, results: Sequence[Json]) -> dict[str, Estimate]:
        """Means over texts."""
        return means(results, accuracy=SHARE, loss=LOSS)
