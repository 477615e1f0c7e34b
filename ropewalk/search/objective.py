"""What the search asks of a model: the loss of the last tokens under long context, on more and more texts.

Every rung is of the target length. Shorter texts would be cheaper, and mislead: of schedules for eight trained lengths
those that break there are the best at two (docs/log.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from ropewalk.evaluation.runner import Progress, Row, run
from ropewalk.evaluation.scores import difference
from ropewalk.evaluation.store import Store
from ropewalk.evaluation.subject import Subject
from ropewalk.evaluation.tasks import Context, Passkey, Task
from ropewalk.extension import Extension
from ropewalk.search.goal import Figures, Goal

KEYS = 5  # pass keys in a text of the target length


class Objective(Protocol):
    """What is minimised."""

    def rungs(self, extension: Extension) -> Iterator[float]:
        """Losses, from what is cheap and rough to what is dear and exact."""

    def damage(self, extension: Extension) -> float:
        """What short texts lose; cheap."""

    def figures(self, extension: Extension) -> Figures:
        """Everything, once all rungs are climbed."""


@dataclass(frozen=True)
class OnTexts:
    """Measured on a subject's passages; what was measured before comes from the store."""

    subject: Subject
    goal: Goal
    store: Store
    watch: Progress = lambda cell: None  # called after each text; what it raises ends the measurement

    def rungs(self, extension: Extension) -> Iterator[float]:
        """One text, a third of them, all of them."""
        samples = self.goal.samples
        for count in sorted({1, max(1, samples // 3), samples}):
            yield self.long(extension, count).numbers["loss"].value

    def damage(self, extension: Extension) -> float:
        """Against the bare model on the same texts."""
        return difference(self.short_losses(extension), self.short_losses(Extension())).value

    def figures(self, extension: Extension) -> Figures:
        """On all texts."""
        mine, bare = self.long(extension), self.long(Extension())
        return Figures(
            loss=mine.numbers["loss"].value,
            damage=self.damage(extension),
            slowdown=mine.seconds / bare.seconds,
            retrieval=None if self.goal.min_retrieval is None else self.keys(extension).numbers["right"].value,
        )

    def long(self, extension: Extension, count: int | None = None) -> Row:
        """The last tokens of so many texts of the target length."""
        task = Context(samples=count or self.goal.samples, last=self.goal.last)
        return self._measured(extension, task, self.goal.target_len)

    def short_losses(self, extension: Extension) -> list[float]:
        """Of each text, where no more is read than the model was trained on."""
        row = self._measured(extension, Context(samples=self.goal.samples), self.goal.facts.trained_len)
        return [each["loss"] for each in row.samples]

    def keys(self, extension: Extension) -> Row:
        """Pass keys in texts of the target length."""
        return self._measured(extension, Passkey(samples=KEYS), self.goal.target_len)

    def _measured(self, extension: Extension, task: Task, length: int) -> Row:
        return run(self.subject, [extension], [task], [length], self.store, progress=self.watch)[0]
