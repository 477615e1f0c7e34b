"""What every task is: a record with a name and a version, and one function that measures one sample at one length."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, cast

from ropewalk.evaluation.material.subject import Subject
from ropewalk.evaluation.metrics.intervals import Estimate
from ropewalk.record import AT_LEAST_ONE
from ropewalk.spec import Json, Spec, build


@dataclass(frozen=True, kw_only=True)
class Task(Spec):
    """A measurement. The model in the subject stands under the extension that is measured when `measure` is called."""

    version: ClassVar[int] = 1  # goes up when the numbers of a task change their meaning
    headline: ClassVar[str] = "loss"  # the number that is shown first
    scored: ClassVar[bool] = False  # whether that is a share of what could be right
    samples: Annotated[int, AT_LEAST_ONE, "how many are measured at each length"] = 16

    @property
    def title(self) -> str:
        """What it is called beside others."""
        return self.name

    @classmethod
    def named(cls, values: Json) -> tuple[Task, ...]:
        """The tasks that a line means by the name and these values."""
        return (cast(Task, build(cls, values)),)

    def identity(self, sample: int) -> Json:
        """What a sample's numbers depend on; how many others there are is no part of it."""
        return self.to_json() | {"samples": 0}

    def require(self, subject: Subject, lengths: Sequence[int]) -> None:
        """Refuse what cannot be measured, before anything is."""

    def at(self, lengths: Sequence[int], trained_len: int) -> tuple[int, ...]:
        """The lengths at which it is measured, of those that are asked for."""
        return tuple(lengths)

    @abstractmethod
    def measure(self, subject: Subject, length: int, sample: int) -> Json:
        """One sample at one length: numbers for JSON. The same for every extension but for what the model answers."""

    @abstractmethod
    def condense(self, results: Sequence[Json]) -> dict[str, Estimate]:
        """The samples of one length, as numbers with intervals."""
