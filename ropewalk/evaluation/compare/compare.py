"""`compare`: several extensions of one model over several lengths, with a verdict for each.

What is asked of an extension at the longest length, against the bare model at its trained length, on the same tokens:
does it break, does it stay as it was, or does it make use of the text beyond?
"""

from __future__ import annotations

import math
import platform
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from importlib.metadata import version
from typing import NamedTuple

from ropewalk.errors import DoesNotFit
from ropewalk.evaluation.compare.runner import OUT_OF_MEMORY, Measuring, Progress, ResultRow, here, run
from ropewalk.evaluation.compare.store import Store
from ropewalk.evaluation.material.subject import Subject
from ropewalk.evaluation.metrics.effective_length import EffectiveLength, effective
from ropewalk.evaluation.metrics.intervals import Estimate, difference
from ropewalk.evaluation.tasks import Context, Damage, Passkey, Repetition, Task
from ropewalk.evaluation.tasks.task_line import checked
from ropewalk.extension import Extension
from ropewalk.facts import Facts
from ropewalk.hf import inspect
from ropewalk.hf.probe.checkpoint_schedule import parsed_for
from ropewalk.notation import BARE
from ropewalk.spec import Json

LINES = (
    *("pi", "ntk", "yarn", "dynamic_yarn", "window", "streaming"),
    *("self_extend", "rerope", "rerope+log_n"),
)
NOTHING = Estimate(math.nan, math.nan, math.nan, 0)  # of what could not be measured
# In nats per token. What is below is seen by no reader, what is above by every one.
BREAKS, HARMS = 0.25, 0.02
# Verdicts: those under which a method holds, and those under which it does not or may not.
HOLDS = MORE, SAME, LITTLE = "uses more text", "as it was", "loses a little"
LOSES, UNCLEAR, BROKEN = "loses", "too few texts to tell", "breaks"
FINDS = 0.8  # of the pass keys: more is "finds", less than 1 - FINDS is "does not"


class Verdict(NamedTuple):
    """What a reader wants to know of an extension."""

    kind: str  # one of those above, or why there is none
    words: str


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One extension of a comparison."""

    line: str
    extension: Extension
    rows: tuple[ResultRow, ...]  # with numbers
    failures: tuple[ResultRow, ...]  # without
    change: Estimate  # of the loss: longest length under the extension less trained length of the bare model
    cache_bytes: int  # of one text of the longest length
    slowdown: float  # seconds at the longest length over those of the first contender
    verdict: Verdict

    def at(self, task: str, length: int) -> ResultRow | None:
        """The numbers of a task at a length."""
        return _find(self.rows, task, length)

    def failed(self, task: str, length: int) -> str:
        """Why there are none, where that is known."""
        row = _find(self.failures, task, length)
        return row.failed if row else ""

    @property
    def rank(self) -> float:
        """What contenders are put in order by: the change, and who could not be measured comes last."""
        return math.inf if math.isnan(self.change.value) else self.change.value

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
    contenders: tuple[Candidate, ...]
    tasks: tuple[Task, ...]
    marks: dict[str, str]
    made: Json
    own_schedule: str = ""  # that the model came with, where it does not turn as RoPE does
    own: Extension = field(default_factory=Extension)  # that the model was trained under: the bare line is under it

    @property
    def trained_len(self) -> int:
        """The length at which the bare model is the measure."""
        return self.facts.trained_len

    @property
    def second(self) -> Candidate:
        """The next lowest."""
        return sorted(self.contenders, key=lambda each: each.rank)[1]

    @property
    def lead(self) -> Estimate:
        """What the second loses against the best, on the same texts."""
        return self._behind(self.second)

    def _behind(self, other: Candidate) -> Estimate:
        found = [each.at(Context.name, self.lengths[-1]) for each in (other, self.best)]
        losses = [[sample["loss"] for sample in row.samples] if row and not row.failed else [] for row in found]
        return difference(*losses) if all(losses) else Estimate(math.nan, math.nan, math.nan, 0)

    @property
    def gain(self) -> Estimate:
        """What the bare model loses against the best at the longest length, on the same texts."""
        return self._behind(self.contenders[0])

    @property
    def seconds(self) -> float:
        """What measuring took, in sum over the cells, whenever and wherever they were measured."""
        return sum(row.seconds for each in self.contenders for row in each.rows)

    @property
    def best(self) -> Candidate:
        """The lowest loss at the longest length."""
        return min(self.contenders, key=lambda each: each.rank)


def reach(comparison: Comparison, each: Candidate, name: str) -> EffectiveLength:
    """How far a contender gets at the tasks of a name; nowhere where memory sufficed for no length."""
    bar = comparison.contenders[0].scores(name).get(comparison.trained_len, 0.0)
    return effective(each.scores(name) or {comparison.trained_len: 0.0}, bar)


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
    config = subject.model.config.get_text_config()
    given = {line: parsed_for(config, line, target, subject.facts) for line in lines}
    named = {BARE: Extension()} | {line: each for line, each in given.items() if each != Extension()}
    rows = run(subject, list(named.values()), asked, lengths, store, measuring=measuring, progress=progress)
    bare_losses = _bare_losses(rows, subject.facts.trained_len)
    seen = inspect(subject.model, target_len=target)
    contenders = [
        _contender(subject, line, each, rows, bare_losses, target, seen.cache_bytes(subject.own.with_line(each)))
        for line, each in named.items()
    ]
    most = max(task.samples for task in asked)
    return Comparison(
        facts=subject.facts,
        lengths=tuple(lengths),
        contenders=tuple(contenders),
        tasks=asked,
        marks=subject.marks,
        made={**made_here(), "texts": subject.text_marks(most)},
        own_schedule=seen.own_schedule,
        own=subject.own.extension,
    )


def _contender(
    subject: Subject,
    line: str,
    extension: Extension,
    rows: Sequence[ResultRow],
    bare: Sequence[float],
    target: int,
    cache_bytes: int,
) -> Candidate:
    own = [row for row in rows if row.extension == extension]
    measured, failures = (tuple(row for row in own if bool(row.failed) == failed) for failed in (False, True))
    at_target = _find(measured, Context.name, target)
    change = difference(_losses(at_target), bare) if at_target else NOTHING
    found = verdict(change, _numbers(measured, Damage.name, "loss"), _numbers(measured, Passkey.name, "right", target))
    if at_target is None:
        found = Verdict(OUT_OF_MEMORY, f"{OUT_OF_MEMORY} at {target:,} tokens")
    return Candidate(
        line=line,
        extension=subject.own.with_line(extension),
        rows=measured,
        failures=failures,
        change=change,
        cache_bytes=cache_bytes,
        slowdown=_seconds(rows, extension, target) / _seconds(rows, Extension(), target),
        verdict=found,
    )


def verdict(change: Estimate, harm: Estimate | None, keys: Estimate | None) -> Verdict:
    """What the numbers say: an interval has to be clear of what it is compared with before a word is used."""
    if change.low > BREAKS:
        return Verdict(BROKEN, BROKEN)
    words = [_kind(change)]
    if keys is not None and keys.value >= FINDS:
        words.append("finds the pass key")
    elif keys is not None and keys.value <= 1 - FINDS:
        words.append("does not find the pass key")
    if harm is not None and harm.low > HARMS:
        words.append(f"harms short texts ({harm.value:+.2f})")
    return Verdict(words[0], ", ".join(words))


def _kind(change: Estimate) -> str:
    """Of what does not surely break: what its interval leaves open is said to be open."""
    if change.high < 0:
        return MORE
    if change.low > 0:
        return LITTLE if change.high < BREAKS else LOSES
    return SAME if change.high < BREAKS else UNCLEAR


def _bare_losses(rows: Sequence[ResultRow], trained_len: int) -> list[float]:
    """What everything is compared with."""
    found = _read(rows, Extension(), trained_len)
    if found is None or found.failed:
        rule = f"enough to read {trained_len} tokens, which everything is compared with"
        got = found.failed if found else None
        raise DoesNotFit("memory", rule, got, remedy="take a smaller model or a larger machine")
    return _losses(found)


def _losses(row: ResultRow) -> list[float]:
    """Of each passage, in the order of the samples."""
    return [each["loss"] for each in row.samples]


def _seconds(rows: Sequence[ResultRow], extension: Extension, length: int) -> float:
    """Of the passages at a length; no number where they could not be read."""
    found = _read(rows, extension, length)
    return found.seconds if found and not found.failed else math.nan


def _read(rows: Sequence[ResultRow], extension: Extension, length: int) -> ResultRow | None:
    """How the passages were read."""
    return _find([row for row in rows if row.extension == extension], Context.name, length)


def _find(rows: Sequence[ResultRow], task: str, length: int) -> ResultRow | None:
    return next((row for row in rows if row.task.title == task and row.length == length), None)


def _numbers(rows: Sequence[ResultRow], task: str, name: str, length: int | None = None) -> Estimate | None:
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
