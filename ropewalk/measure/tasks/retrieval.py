"""What retrieval tasks share: a prompt for each sample, tried out before anything is measured."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar, TypeAlias

from ropewalk.measure.material.subject import Subject
from ropewalk.measure.metrics.intervals import LOSS, Estimate, means, share
from ropewalk.measure.tasks.task import Task
from ropewalk.methods.spec import Json

Ranges: TypeAlias = Mapping[str, tuple[float, float]]  # of numbers, by their names


@dataclass(frozen=True, kw_only=True)
class Retrieval(Task):
    """A task that asks for something in the text. Its prompts are the same for every extension."""

    headline: ClassVar[str] = "right"
    scored: ClassVar[bool] = True
    shares: ClassVar[tuple[str, ...]] = ("right",)  # numbers of a sample from 0 to 1, with Wilson's interval
    averages: ClassVar[Ranges] = {"loss": LOSS}  # others, with their ranges

    @abstractmethod
    def prompt(self, subject: Subject, length: int, sample: int) -> Any:
        """The prompt of a sample."""

    def require(self, subject: Subject, lengths: Sequence[int]) -> None:
        """Refuse lengths that are too short for a prompt, and tokenizers and texts that make none."""
        self.prompt(subject, min(lengths), 0)
        self.prompt(subject, max(lengths), 0)

    def condense(self, results: Sequence[Json]) -> dict[str, Estimate]:
        """The shares and the means over samples."""
        shares = {name: share(sum(result[name] for result in results), len(results)) for name in self.shares}
        return {**shares, **means(results, **self.averages)}

    def chance(self, subject: Subject, length: int, sample: int) -> Random:
        """The random numbers of a sample: the same on any machine and under every extension."""
        return Random(f"{subject.seed}/{self.title}/{length}/{sample}")


@dataclass(frozen=True, kw_only=True)
class AtDepths(Retrieval):
    """What is asked for stands at depth (k + 1/2) / samples in sample k."""

    def depth(self, sample: int) -> float:
        """Where it stands, between 0 and 1."""
        return (sample + 0.5) / self.samples

    def identity(self, sample: int) -> Json:
        """With its depth, which depends on the number of samples."""
        return super().identity(sample) | {"depth": self.depth(sample)}
