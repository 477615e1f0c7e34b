"""Loss and answers of `context` with keys and values rounded as in a quantised cache: what the smaller cache costs.

The texts, their secret numbers and the tokens that are scored are those of `context`, so differences are of the cache
alone. int8 and int4 have the groups of 32 of llama.cpp's q8_0 and q4_1, and fp8 is vLLM's without calibrated scales:
every key and value is rounded once, the newest too. Nothing else is rounded. It measures the loss of precision: the
rounded numbers take the memory and the time of exact ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from transformers import DynamicCache

from ropewalk.hf.attach.handle import host_of
from ropewalk.hf.runtime.rounded_cache import RoundedCache, Rounding
from ropewalk.measure.material.subject import Subject
from ropewalk.measure.tasks.context import QUESTIONS, Context
from ropewalk.measure.tasks.task import Task
from ropewalk.methods.spec import Json

BY_DEFAULT = ("int8", "int4")


@dataclass(frozen=True, kw_only=True)
class QuantisedCache(Context):
    name: ClassVar[str] = "cache"
    version: ClassVar[int] = 1
    questions: Annotated[int, QUESTIONS, "secret numbers that a text hides, as many as `context` asks for"] = 8
    kind: Annotated[Rounding, "how keys and values are rounded"]

    @property
    def title(self) -> str:
        """With the kind."""
        return f"{self.name}_{self.kind}"

    @classmethod
    def named(cls, values: Json) -> tuple[Task, ...]:
        """The kind that is named; without a name, int8 and int4."""
        kinds = [values["kind"]] if "kind" in values else BY_DEFAULT
        return tuple(task for kind in kinds for task in super(QuantisedCache, cls).named(values | {"kind": kind}))

    def at(self, lengths: Sequence[int], trained_len: int) -> tuple[int, ...]:
        """The shortest and the longest: lengths between add nothing."""
        return tuple(sorted({min(lengths), max(lengths)}))

    def cache(self, subject: Subject) -> DynamicCache:
        """One that rounds."""
        return RoundedCache(self.kind, config=host_of(subject.model).config)

    def standard(self, trained_len: int, length: int, longest: int) -> str:
        """None: it is compared with `context` at the same length."""
        return ""
