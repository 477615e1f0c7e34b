"""What the search asks of a model: the loss of the last tokens under long context, on more and more texts.

Every rung is of the target length. Shorter texts would be cheaper, and mislead: of schedules for eight trained lengths
those that break there are the best at two (docs/log.md).
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from ropewalk.errors import DoesNotFit
from ropewalk.evaluation.compare.cells import Cell
from ropewalk.evaluation.compare.runner import Finished, Progress, ResultRow, here, run
from ropewalk.evaluation.compare.store import Store
from ropewalk.evaluation.compare.workers import side_by_side
from ropewalk.evaluation.material.subject import Subject
from ropewalk.evaluation.metrics.intervals import difference
from ropewalk.evaluation.tasks import Context, Passkey, Task
from ropewalk.extension import Extension
from ropewalk.search.goal import Goal, Measurements
from ropewalk.search.slopes import MeasuredGradients

KEYS = 5  # pass keys in a text of the target length


class Objective(Protocol):
    """What is minimised."""

    def rungs(self, extension: Extension) -> Iterator[float]:
        """Losses, from what is cheap and rough to what is dear and exact."""

    def damage(self, extension: Extension) -> float:
        """What short texts lose; cheap."""

    def figures(self, extension: Extension) -> Measurements:
        """Everything, once all rungs are climbed."""

    def slopes(self, extension: Extension) -> Tensor | None:
        """Of the loss of each text by each gene, [texts, genes], where a table is all there is and slopes are known."""


@dataclass(frozen=True)
class OnTexts:
    """Measured on a subject's passages; what was measured before comes from the store."""

    subject: Subject
    goal: Goal
    store: Store
    count: int  # of the passages that are read
    watch: Progress = lambda cell: None  # called after each text; what it raises ends the measurement

    def rungs(self, extension: Extension) -> Iterator[float]:
        """An eighth of the texts, a third, all."""
        for count in sorted({max(1, self.count // 8), max(1, self.count // 3), self.count}):
            yield self.long(extension, count).numbers["loss"].value

    def damage(self, extension: Extension) -> float:
        """Against the bare model on the same texts."""
        return difference(self.short_losses(extension), self.short_losses(Extension())).value

    def figures(self, extension: Extension) -> Measurements:
        """On all texts."""
        mine, bare = self.long(extension), self.long(Extension())
        return Measurements(
            loss=mine.numbers["loss"].value,
            damage=self.damage(extension),
            slowdown=mine.seconds / bare.seconds,
            retrieval=None if self.goal.min_retrieval is None else self.keys(extension).numbers["right"].value,
        )

    def slopes(self, extension: Extension) -> Tensor | None:
        """One backward pass for each text; nothing where the model, or its memory, does not allow that."""
        task = MeasuredGradients(samples=self.count, last=self.goal.last)
        try:
            found = self._measured(extension, task, self.goal.target_len).samples
        except DoesNotFit:
            return None
        by_pair = torch.tensor([each["by_pair"] for each in found], dtype=torch.float64)
        by_temperature = torch.tensor([each["by_temperature"] for each in found], dtype=torch.float64)
        return torch.cat([-math.log(self.goal.factor) * by_pair, by_temperature[:, None]], 1)

    def long(self, extension: Extension, count: int | None = None) -> ResultRow:
        """The last tokens of so many texts of the target length."""
        task = Context(samples=count or self.count, last=self.goal.last)
        return self._measured(extension, task, self.goal.target_len)

    def short_losses(self, extension: Extension) -> list[float]:
        """Of each text, where no more is read than the model was trained on."""
        row = self._measured(extension, Context(samples=self.count), self.goal.facts.trained_len)
        return [each["loss"] for each in row.samples]

    def keys(self, extension: Extension) -> ResultRow:
        """Pass keys in texts of the target length."""
        return self._measured(extension, Passkey(samples=KEYS), self.goal.target_len)

    def _measured(self, extension: Extension, task: Task, length: int) -> ResultRow:
        given: dict[str, Any] = {"measuring": measuring, "progress": self.watch}
        row = run(self.subject, [extension], [task], [length], self.store, **given)[0]
        if row.failed:
            raise DoesNotFit("memory", f"enough for texts of {length} tokens", row.failed, remedy="shorten --to")
        return row


def measuring(subject: Subject, missing: Sequence[Cell]) -> Generator[Finished, None, None]:
    """In several processes, but for slopes: autograd does not outlive a fork."""
    sloping = any(isinstance(cell.task, MeasuredGradients) for cell in missing)
    return here(subject, missing) if sloping else side_by_side()(subject, missing)
