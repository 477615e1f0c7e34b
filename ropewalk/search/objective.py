"""What the search minimises: the loss of the last tokens with long context, on more and more texts.

Every rung has the target length, and the other lengths of the goal. Shorter texts alone would be cheaper but mislead:
among schedules for eight trained lengths, those that break there are the best at two (studies/log.md).
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Protocol

import torch
from torch import Tensor

from ropewalk.errors import DoesNotFit
from ropewalk.extension.extension import Extension
from ropewalk.measure.comparison.halving import rounds
from ropewalk.measure.comparison.runner import Cell, Finished, Progress, ResultRow, measure_here, run
from ropewalk.measure.comparison.store import Store
from ropewalk.measure.comparison.workers import side_by_side
from ropewalk.measure.material.subject import Subject
from ropewalk.measure.metrics.intervals import Estimate, difference, mean, projects_of
from ropewalk.measure.tasks import Context, Passkey, Task
from ropewalk.search.conditions import ALL, FAR
from ropewalk.search.far_tokens import FarLoss, FarTokens, Places
from ropewalk.search.goal import Goal, Measurements, last_of
from ropewalk.search.gradients import MeasuredGradients

PASSKEYS_PER_TEXT = 5  # passkeys per text of the target length


class Objective(Protocol):
    """The function that a search minimises."""

    def rungs(self, extension: Extension) -> Iterator[float]:
        """Losses, from cheap and rough to expensive and exact."""

    def damage(self, extension: Extension) -> float:
        """The rise of the loss of short texts; cheap."""

    def figures(self, extension: Extension) -> Measurements:
        """All measurements, after the last rung."""

    def slopes(self, extension: Extension) -> Tensor | None:
        """Gradients of each text's loss by the genes, [texts, genes]; None unless the extension is one static table."""


@dataclass(frozen=True)
class OnTexts:
    """The objective on a subject's passages; measurements come from the store where it has them."""

    subject: Subject
    goal: Goal
    store: Store
    count: int  # passages to read
    watch: Progress = lambda cell, result: None  # called after each text; an exception in it ends the measurement

    def rungs(self, extension: Extension) -> Iterator[float]:
        """The loss on an eighth of the texts, a third, all."""
        for count in rounds(self.count):
            if not self.scored_tokens(count):  # few texts may have none
                continue
            yield self.loss(extension, count).value

    def damage(self, extension: Extension) -> float:
        """The rise against the base model on the same texts."""
        return difference(self.short_losses(extension), self.short_losses(Extension())).value

    def figures(self, extension: Extension) -> Measurements:
        """All measurements, on all texts."""
        rows, bare = self.rows(extension), self.long(Extension())
        return Measurements(
            loss=mean_loss(rows).value,
            damage=self.damage(extension),
            slowdown=rows[-1].times(bare),
            retrieval=None if self.goal.min_retrieval is None else self.keys(extension).numbers["right"].value,
        )

    def slopes(self, extension: Extension) -> Tensor | None:
        """One backward pass per text and length; None where the model, or its memory, does not allow that."""
        try:
            parts = [self._slopes_at(extension, length) for length in self.goal.scored_lengths]
        except DoesNotFit:
            return None
        return torch.stack(parts).mean(0)

    def _slopes_at(self, extension: Extension, length: int) -> Tensor:
        places = self.far_places() if self.goal.objective == FAR else ()
        task = MeasuredGradients(samples=self.count, last=last_of(length), places=places)
        samples = self._measured(extension, task, length).samples
        by_pair = torch.tensor([sample["by_pair"] for sample in samples], dtype=torch.float64)
        by_temperature = torch.tensor([sample["by_temperature"] for sample in samples], dtype=torch.float64)
        gradients = torch.cat([-math.log(self.goal.factor) * by_pair, by_temperature[:, None]], 1)
        tokens = torch.tensor([sample["tokens"] for sample in samples], dtype=torch.float64)
        return gradients * (tokens / tokens.mean())[:, None]  # each text as it counts in the mean over tokens

    def long(self, extension: Extension, count: int | None = None) -> ResultRow:
        """The loss of the last tokens, on texts of the target length."""
        target = self.goal.target_len
        return self._measured(extension, self._task(count or self.count, target), target)

    def rows(self, extension: Extension, count: int | None = None) -> list[ResultRow]:
        """The loss of the last tokens, on texts of each length that counts."""
        count = count or self.count
        return [self._measured(extension, self._task(count, length), length) for length in self.goal.scored_lengths]

    def loss(self, extension: Extension, count: int | None = None) -> Estimate:
        """What is minimised."""
        return mean_loss(self.rows(extension, count))

    def _task(self, count: int, length: int) -> Task:
        if self.goal.objective == ALL:
            return Context(samples=count, last=last_of(length))
        return FarLoss(samples=count, last=self.goal.last, places=self.far_places(count))

    def far_places(self, count: int | None = None) -> Places:
        """The tokens of each text that need far context, fixed by the base model; the store has them from then on."""
        task = FarTokens(samples=count or self.count, last=self.goal.last)
        samples = self._measured(Extension(), task, self.goal.target_len).samples
        return tuple(tuple(sample["places"]) for sample in samples)

    def require_tokens(self) -> None:
        """Refuse texts without a token that counts."""
        if not self.scored_tokens(self.count):
            rule = "texts with tokens that need far context, where the objective is far"
            raise DoesNotFit("corpus", rule, self.subject.corpus, remedy="take more samples, or other texts")

    def scored_tokens(self, count: int) -> int:
        """How many tokens count in this many texts."""
        return count * self.goal.last if self.goal.objective == ALL else sum(map(len, self.far_places(count)))

    @property
    def groups(self) -> Sequence[str]:
        """The groups that texts are drawn in: those of one project are alike."""
        return self.subject.projects(self.count)

    def short_losses(self, extension: Extension) -> list[float]:
        """The loss of each text within the trained length."""
        row = self._measured(extension, Context(samples=self.count), self.goal.facts.trained_len)
        return [sample["loss"] for sample in row.samples]

    def keys(self, extension: Extension) -> ResultRow:
        """Passkeys in texts of the target length."""
        return self._measured(extension, Passkey(samples=PASSKEYS_PER_TEXT), self.goal.target_len)

    def _measured(self, extension: Extension, task: Task, length: int) -> ResultRow:
        options: dict[str, Any] = {"measuring": measure_missing, "progress": self.watch}
        row = run(self.subject, [extension], [task], [length], self.store, **options)[0]
        if row.failed:
            raise DoesNotFit("memory", f"enough for texts of {length} tokens", row.failed, remedy="shorten --to")
        return row


def mean_loss(rows: Sequence[ResultRow]) -> Estimate:
    """The mean over texts and lengths; at one length texts may count by their tokens."""
    if len(rows) == 1:
        return rows[0].numbers["loss"]
    return mean(text_losses(rows), groups=projects_of(rows[0].samples), least=0)


def text_losses(rows: Sequence[ResultRow]) -> list[float]:
    """The loss of each text: the mean over the lengths."""
    by_length = [[sample["loss"] for sample in row.samples] for row in rows]
    return [fmean(losses) for losses in zip(*by_length, strict=True)]


def measure_missing(subject: Subject, missing: Sequence[Cell]) -> Generator[Finished, None, None]:
    """Measure in several processes, except gradients: autograd does not survive a fork."""
    needs_gradients = any(isinstance(cell.task, MeasuredGradients) for cell in missing)
    return measure_here(subject, missing) if needs_gradients else side_by_side()(subject, missing)
