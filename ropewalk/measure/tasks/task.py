"""The base of all tasks: a record with a name and a version, and a function that measures one sample."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, cast

from ropewalk.measure.material.subject import Subject
from ropewalk.measure.metrics.intervals import Estimate
from ropewalk.methods.record import AT_LEAST_ONE
from ropewalk.methods.spec import Json, Spec, build


@dataclass(frozen=True, kw_only=True)
class Task(Spec):
    """A measurement. When `measure` is called, the subject's model is already under the extension to measure."""

    version: ClassVar[int] = 1  # to be increased when the meaning of the numbers changes
    headline: ClassVar[str] = "loss"  # the main number
    scored: ClassVar[bool] = False  # whether the main number is a share of correct answers
    samples: Annotated[int, AT_LEAST_ONE, "texts for each length"] = 16

    @property
    def title(self) -> str:
        """Its name in reports; different for each task of a comparison."""
        return self.name

    @classmethod
    def named(cls, values: Json) -> tuple[Task, ...]:
        """The tasks that a line names by these values."""
        return (cast(Task, build(cls, values)),)

    def identity(self, sample: int) -> Json:
        """What the numbers of a sample depend on; not on how many samples there are."""
        return self.to_json() | {"samples": 0}

    def prepared(self, subject: Subject, folder: Path) -> Task:
        """The task with what it needs beside the model and the texts, made once and stored in the folder of results."""
        return self

    def require(self, subject: Subject, lengths: Sequence[int]) -> None:
        """Refuse what cannot be measured, before anything is measured."""

    def at(self, lengths: Sequence[int], trained_len: int) -> tuple[int, ...]:
        """The lengths at which the task is measured, of those of the comparison."""
        return tuple(lengths)

    @abstractmethod
    def measure(self, subject: Subject, length: int, sample: int) -> Json:
        """One sample at one length: numbers for JSON. Only the model's answers depend on the extension."""

    @abstractmethod
    def condense(self, results: Sequence[Json]) -> dict[str, Estimate]:
        """The samples of one length as numbers with intervals."""
