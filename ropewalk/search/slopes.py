"""The slopes of the loss of each text, kept like any other measurement: what a search steps along."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from ropewalk.evaluation.material.subject import Subject
from ropewalk.evaluation.metrics.intervals import Estimate
from ropewalk.evaluation.tasks import Task
from ropewalk.hf.use.frequency_gradients import slopes
from ropewalk.record import AT_LEAST_ONE
from ropewalk.spec import Json


@dataclass(frozen=True, kw_only=True)
class MeasuredGradients(Task):
    name: ClassVar[str] = "slopes"
    last: Annotated[int, AT_LEAST_ONE, "tokens whose loss is meant"]

    def measure(self, subject: Subject, length: int, sample: int) -> Json:
        """Of one text."""
        ids = subject.passages(self.samples)[sample].to(subject.model.device)[None, -length:]
        found = slopes(subject.model, ids, last=self.last)
        return {"by_pair": found.by_pair.tolist(), "by_temperature": found.by_temperature}

    def condense(self, measured: Sequence[Json]) -> dict[str, Estimate]:
        """Nothing: texts are to be seen one by one."""
        return {}
