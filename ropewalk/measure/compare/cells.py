"""The unit of work: one extension, one length, one task, one sample."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ropewalk.extension.extension import Extension
from ropewalk.measure.material.measured_by import code_marks
from ropewalk.measure.tasks.outside.complete import source_mark
from ropewalk.measure.tasks.signature import Task


class Cell(NamedTuple):
    """What is measured at once, stored when finished, and never measured again."""

    extension: Extension
    task: Task
    length: int
    sample: int

    def key(self, marks: Mapping[str, str]) -> str:
        """The key in a store: the same for the same numbers, on any machine with the same sources and versions."""
        source = source_mark(self.task)
        content = {
            "marks": dict(marks),
            "extension": self.extension.to_json(),
            "task": self.task.identity(self.sample),  # with more samples, the first ones keep their keys
            "version": self.task.version,
            "length": self.length,
            "sample": self.sample,
            "measured by": code_marks(),
            **({"source": source} if source else {}),
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def cells(
    extensions: Sequence[Extension],
    tasks: Sequence[Task],
    lengths: Sequence[int],
    trained_len: int,
    *,
    only_longest: bool = False,
) -> Iterator[Cell]:
    """Every cell of a comparison, one extension after the other, so that the model is rarely extended anew.

    `only_longest`: all but the base model, which is the first, read texts of the longest length alone.
    """
    for number, extension in enumerate(extensions):
        read = lengths[-1:] if only_longest and number else lengths
        for task in tasks:
            for length in task.at(read, trained_len):
                yield from (Cell(extension, task, length, sample) for sample in range(task.samples))
