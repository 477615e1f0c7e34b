"""`compare`: several extensions of one model over several lengths, with a verdict for each.

What is asked of an extension at the longest length, against the bare model at its trained length, on the same tokens:
does it break, does it stay as it was, or does it make use of the text beyond?
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib.metadata import version
from typing import NamedTuple

from ropewalk.evaluation.asked import checked
from ropewalk.evaluation.effective import Effective, effective
from ropewalk.evaluation.runner import Measuring, Progress, Row, here, run
from ropewalk.evaluation.scores import Estimate, difference
from ropewalk.evaluation.store import Store
from ropewalk.evaluation.subject import Subject
from ropewalk.evaluation.tasks import Context, Damage, Passkey, Repetition, Task
from ropewalk.extension import Extension
from ropewalk.facts import Facts
from ropewalk.hf import inspect
from ropewalk.parsing import parse
from ropewalk.spec import Json

LINES = (
    *("pi", "ntk", "yarn", "dynamic_yarn", "window", "streaming"),
    *("self_extend", "rerope", "rerope+log_n"),
)
BARE = "bare"  # what the model without an extension is called
# In nats per token. What is below is seen by no reader, what is above by every one.
BREAKS, HARMS = 0.25, 0.02
FINDS = 0.8  # of the pass keys: more is "finds", less than 1 - FINDS is "does not"


class Verdict(NamedTuple):
    """What a reader wants to know of an extension."""

    kind: str  # "breaks", "as it was", "uses more text"
    words: str


@dataclass(frozen=True, kw_only=True)
class Contender:
    """One extension of a comparison."""

    line: str
    extension: Extension
    rows: tuple[Row, ...]
    change: Estimate  # of the loss: longest length under the extension less trained length of the bare model
    cache_bytes: int  # of one text of the longest length
    slowdown: float  # seconds at the longest length over those of the first contender
    verdict: Verdict

    def at(self, task: str, length: int) -> Row | None:
        """The numbers of a task at a length."""
        return next((row for row in self.rows if row.task.title == task and row.length == length), None)

    def scores(self, name: str) -> dict[int, float]:
        """At each length the mean over all tasks of a name, such as RULER's kinds."""
        rows = [row for row in self.rows if row.task.name == name]
        by_length = {row.length: [each for each in rows if each.length == row.length] for row in rows}
        return {
            length: sum(row.numbers[row.task.headline].value for row in found) / len(found)
            for length, found in by_length.items()
        }


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A table with a verdict for each line, and everything needed to make it again."""

    facts: Facts
    lengths: tuple[int, ...]
    contenders: tuple[Contender, ...]
    tasks: tuple[Task, ...]
    marks: dict[str, str]
    made: Json

    @property
    def trained_len(self) -> int:
        """The length at which the bare model is the measure."""
        return self.facts.trained_len

    @property
    def best(self) -> Contender:
        """The lowest loss at the longest length."""
        return min(self.contenders, key=lambda each: each.change.value)


def reach(comparison: Comparison, each: Contender, name: str) -> Effective:
    """How far a contender gets at the tasks of a name."""
    return effective(each.scores(name), comparison.contenders[0].scores(name).get(comparison.trained_len, 0.0))


def tasks_of(samples: int) -> tuple[Task, ...]:
    """What is measured, by default."""
    few = max(2, samples // 2)
    return Context(samples=samples), Repetition(samples=few), Passkey(samples=samples), Damage(samples=few)


def compare(
    subject: Subject,
    lines: Sequence[str],
    lengths: Sequence[int],
    store: Store,
    *,
    tasks: Sequence[Task] | None = None,
    measuring: Measuring = here,
    progress: Progress = lambda cell: None,
) -> Comparison:
    """Measure what is missing in the store. The bare model is always among the contenders, and comes first."""
    asked = checked(tasks or tasks_of(8), 8)
    lengths = sorted({subject.facts.trained_len, *lengths})
    target = lengths[-1]
    layers = subject.facts.layers
    given = {
        line: parse(line, trained_len=subject.facts.trained_len, target_len=target, layers=layers) for line in lines
    }
    named = {BARE: Extension()} | {line: each for line, each in given.items() if each != Extension()}
    rows = run(subject, list(named.values()), asked, lengths, store, measuring=measuring, progress=progress)
    bare_losses = _losses(rows, Extension(), subject.facts.trained_len)
    contenders = [_contender(subject, line, each, rows, bare_losses, target) for line, each in named.items()]
    most = max(task.samples for task in asked)
    return Comparison(
        facts=subject.facts,
        lengths=tuple(lengths),
        contenders=tuple(contenders),
        tasks=asked,
        marks=subject.marks,
        made={**made_here(), "texts": subject.text_marks(most)},
    )


def _contender(
    subject: Subject, line: str, extension: Extension, rows: Sequence[Row], bare: Sequence[float], target: int
) -> Contender:
    own = tuple(row for row in rows if row.extension == extension)
    change = difference(_losses(rows, extension, target), bare)
    seconds = [_seconds(rows, each, target) for each in (extension, Extension())]
    return Contender(
        line=line,
        extension=extension,
        rows=own,
        change=change,
        cache_bytes=inspect(subject.model, target_len=target).cache_bytes(extension),
        slowdown=seconds[0] / seconds[1],
        verdict=verdict(change, _numbers(own, Damage.name, "loss"), _numbers(own, Passkey.name, "right", target)),
    )


def verdict(change: Estimate, harm: Estimate | None, keys: Estimate | None) -> Verdict:
    """What the numbers say: an interval has to be clear of what it is compared with before a word is used."""
    if change.low > BREAKS:
        return Verdict("breaks", f"breaks: {change.value:+.2f} nats a token")
    kind = "uses more text" if change.high < 0 else "loses a little" if change.low > 0 else "as it was"
    words = [kind]
    if keys is not None and keys.value >= FINDS:
        words.append("finds the pass key")
    elif keys is not None and keys.value <= 1 - FINDS:
        words.append("does not find the pass key")
    if harm is not None and harm.low > HARMS:
        words.append(f"harms short texts ({harm.value:+.2f})")
    return Verdict(kind, ", ".join(words))


def _losses(rows: Sequence[Row], extension: Extension, length: int) -> list[float]:
    """Of each passage, in the order of the samples."""
    found = next(
        row for row in rows if row.extension == extension and row.length == length and row.task.name == Context.name
    )
    return [each["loss"] for each in found.samples]


def _seconds(rows: Sequence[Row], extension: Extension, length: int) -> float:
    return next(
        row.seconds
        for row in rows
        if row.extension == extension and row.length == length and row.task.name == Context.name
    )


def _numbers(rows: Sequence[Row], task: str, name: str, length: int | None = None) -> Estimate | None:
    """A number of a task at a length; at the shortest where none is named; nothing where it was not measured."""
    found = [row for row in rows if row.task.name == task and length in (None, row.length)]
    return min(found, key=lambda row: row.length).numbers[name] if found else None


def made_here(*more: str) -> Json:
    """When, where and with what, further packages among it."""
    packages = ("ropewalk", "torch", "transformers", "tokenizers", *more)
    return {
        "when": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "versions": {name: version(name) for name in packages},
    }
