"""A section for each task: every number at every length with its interval; then the effective lengths."""

from __future__ import annotations

import math
import sys
from typing import NamedTuple

from ropewalk.measure.comparison.comparison import Candidate, Comparison, reach
from ropewalk.measure.metrics.correlation import LLAMA_2, OWN
from ropewalk.measure.metrics.intervals import Estimate
from ropewalk.measure.report.drawing.names import name_of
from ropewalk.measure.report.tables import mark, ordered, other_tokens
from ropewalk.measure.tasks import Context, Task

REACH = "effective length"
ABOUT_REACH = (
    "weighted mean: the mean score over lengths, long or short ones weighted more. Then the longest length up to"
    f" which every score is above {LLAMA_2:.1%} (RULER's threshold), or at least {OWN:.0%} of the base model's at its"
    " trained length."
)


class Section(NamedTuple):
    """A table with a title and a sentence."""

    name: str
    about: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def sections(comparison: Comparison) -> list[Section]:
    """What was measured, task by task."""
    tasks = [_section_of(comparison, task) for task in comparison.tasks]
    names = list(dict.fromkeys(task.name for task in comparison.tasks if task.scored))
    return [*tasks, _effective_lengths(comparison, names)] if names else tasks


def _section_of(comparison: Comparison, task: Task) -> Section:
    lengths = task.at(comparison.lengths, comparison.trained_len)
    rows = [row for candidate in ordered(comparison) for row in _rows(candidate, task, lengths)]
    head = ("extension", "number", *(f"{length:,}" for length in lengths))
    about = (sys.modules[type(task).__module__].__doc__ or "").partition("\n")[0]
    apart = other_tokens(comparison) if task.title == Context.name else ()
    return Section(task.title, " ".join([about, *apart]), head, tuple(rows))


def _rows(candidate: Candidate, task: Task, lengths: tuple[int, ...]) -> list[tuple[str, ...]]:
    """One for each number of the task; some numbers exist at one length only."""
    line = name_of(candidate.line)
    by_length = {length: row.numbers for length in lengths if (row := candidate.at(task.title, length))}
    names = dict.fromkeys(name for numbers in by_length.values() for name in numbers)
    marks = {length: mark(candidate, task.title, length) for length in lengths}
    if not names and any(marks.values()):
        return [(line, "", *marks.values())]

    def cell(length: int, name: str) -> str:
        numbers = by_length.get(length, {})
        return estimated(numbers[name]) if name in numbers else marks[length]

    return [(line, _in_words(name), *(cell(length, name) for length in lengths)) for name in names]


def _in_words(name: str) -> str:
    """The name of a number, as people write it."""
    return "KL divergence" if name == "kl" else name.replace("_", " ")


def _effective_lengths(comparison: Comparison, names: list[str]) -> Section:
    head = (
        "extension",
        "task",
        "weighted mean, long",
        "weighted mean, short",
        f"above {LLAMA_2:.1%}",
        f"{OWN:.0%} of base model",
    )
    rows = [_effective(comparison, candidate, name) for name in names for candidate in ordered(comparison)]
    return Section(REACH, ABOUT_REACH, head, tuple(rows))


def _effective(comparison: Comparison, candidate: Candidate, name: str) -> tuple[str, ...]:
    result = reach(comparison, candidate, name)
    lengths = (_length(comparison, length) for length in (result.fixed, result.own))
    return name_of(candidate.line), name, f"{result.rising:.2f}", f"{result.falling:.2f}", *lengths


def _length(comparison: Comparison, length: int | None) -> str:
    return f"below {comparison.lengths[0]:,}" if length is None else f"{length:,}"


def estimated(estimate: Estimate) -> str:
    """A number with its interval, where it has one."""
    value, low, high = (f"{number:.2f}" if round(number, 2) else "0.00" for number in estimate[:3])
    interval = f" [{low}, {high}]"
    return value + (interval if math.isfinite(estimate.high - estimate.low) else "")
