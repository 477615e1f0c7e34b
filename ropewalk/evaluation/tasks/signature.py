"""What every task is: a record with a name and a version, and one function that measures one sample at one length."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from ropewalk.evaluation.scores import Estimate
from ropewalk.evaluation.subject import Subject
from ropewalk.record import AT_LEAST_ONE
from ropewalk.spec import Json, Spec


@dataclass(frozen=True, kw_only=True)
class Task(Spec):
    """A measurement. The model in the subject stands under the extension that is measured when `measure` is called."""

    version: ClassVar[int] = 1  # goes up when the numbers of a task change their meaning
    samples: Annotated[int, AT_LEAST_ONE, "how many are measured at each length"] = 16

    def at(self, lengths: Sequence[int], trained_len: int) -> tuple[int, ...]:
        """The lengths at which it is measured, of those that are asked for."""
        return tuple(lengths)

    @abstractmethod
    def measure(self, subject: Subject, length: int, sample: int) -> Json:
        """One sample at one length: numbers for JSON. The same for every extension but for what the model answers."""

    @abstractmethod
    def condense(self, measured: Sequence[Json]) -> dict[str, Estimate]:
        """The samples of one length, as numbers with intervals."""
