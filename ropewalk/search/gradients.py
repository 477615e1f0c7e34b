"""Gradients of the loss of each text, stored like any other measurement; `descent` steps along them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from ropewalk.hf.use.frequency_gradients import slopes
from ropewalk.measure.material.subject import Subject
from ropewalk.measure.metrics.intervals import Estimate
from ropewalk.measure.tasks import Task
from ropewalk.methods.record import AT_LEAST_ONE
from ropewalk.methods.spec import Json
from ropewalk.search.far_tokens import Places


@dataclass(frozen=True, kw_only=True)
class MeasuredGradients(Task):
    name: ClassVar[str] = "slopes"
    last: Annotated[int, AT_LEAST_ONE, "last tokens, whose loss counts"]
    places: Annotated[Places, "of each text, among the last tokens; nothing: all of them"] = ()

    def identity(self, sample: int) -> Json:
        """A sample depends on its own places."""
        return {**super().identity(sample), "places": self.places[sample] if self.places else ()}

    def measure(self, subject: Subject, length: int, sample: int) -> Json:
        """The gradients of one text."""
        ids = subject.begun(subject.passages(self.samples)[sample], length)[None]
        places = self.places[sample] if self.places else tuple(range(self.last))
        gradients = slopes(subject.model, ids, last=self.last, places=places)
        numbers = {"by_pair": gradients.by_pair.tolist(), "by_temperature": gradients.by_temperature}
        return {**numbers, "tokens": len(places)}

    def condense(self, measured: Sequence[Json]) -> dict[str, Estimate]:
        """Nothing: texts are used one by one."""
        return {}
