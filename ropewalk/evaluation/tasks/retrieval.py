"""What tasks of retrieval share: a prompt for each sample, made before anything is measured to see that it can be."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar

from ropewalk.evaluation.material.subject import Subject
from ropewalk.evaluation.tasks.signature import Task


@dataclass(frozen=True, kw_only=True)
class Retrieval(Task):
    """A task that asks for what a text says. Its prompts are the same for every extension."""

    headline: ClassVar[str] = "right"
    scored: ClassVar[bool] = True

    @abstractmethod
    def prompt(self, subject: Subject, length: int, sample: int) -> Any:
        """What is read for a sample."""

    def require(self, subject: Subject, lengths: Sequence[int]) -> None:
        """Refuse lengths without room for a prompt, and tokenizers and texts that none can be made with."""
        self.prompt(subject, min(lengths), 0)
        self.prompt(subject, max(lengths), 0)

    def chance(self, subject: Subject, length: int, sample: int) -> Random:
        """What decides a sample: the same numbers on any machine, whatever the model's extension."""
        return Random(f"{subject.seed}/{self.title}/{length}/{sample}")
