"""A section for each task: every number at every length with its interval; and how far each extension gets."""

from __future__ import annotations

import math
import sys
from typing import NamedTuple

from ropewalk.evaluation.compare.compare import Candidate, Comparison, reach
from ropewalk.evaluation.metrics.effective_length import LLAMA_2, OWN
from ropewalk.evaluation.metrics.intervals import Estimate
from ropewalk.evaluation.tasks import Task
from ropewalk.report.tables import mark, ordered

REACH = "reach"
ABOUT_REACH = (
    "Shares found, averaged over the tasks of a name and over lengths, the longer or the shorter the heavier; the"
    f" longest length with more than {LLAMA_2:.1%} (RULER's bar), and with {OWN:.0%} of what the bare model finds"
    " at its trained length."
)


class Section(NamedTuple):
    """Words in rows, under a title."""

    name: str
    about: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def sections(comparison: Comparison) -> list[Section]:
    """What was measured, task by task."""
    found = [_of(comparison, task) for task in comparison.tasks]
    names = list(dict.fromkeys(task.name for task in comparison.tasks if task.scored))
    return [*found, _reach(comparison, names)] if names else found


def _of(comparison: Comparison, task: Task) -> Section:
    lengths = task.at(comparison.lengths, comparison.trained_len)
    rows = [row for each in ordered(comparison) for row in _rows(each, task, lengths)]
    head = ("extension", "number", *(f"{length:,}" for length in lengths))
    about = (sys.modules[type(task).__module__].__doc__ or "").partition("\n")[0]
    return Section(task.title, about, head, tuple(rows))


def _rows(each: Candidate, task: Task, lengths: tuple[int, ...]) -> list[tuple[str, ...]]:
    """One for each number of the task; some numbers there are at one length alone."""
    found = {length: row.numbers for length in lengths if (row := each.at(task.title, length))}
    names = dict.fromkeys(name for numbers in found.values() for name in numbers)
    marks = {length: mark(each, task.title, length) for length in lengths}
    if not names and any(marks.values()):
        return [(each.line, "", *marks.values())]

    def cell(length: int, name: str) -> str:
        own = found.get(length, {})
        return estimated(own[name]) if name in own else marks[length]

    return [(each.line, name, *(cell(length, name) for length in lengths)) for name in names]


def _reach(comparison: Comparison, names: list[str]) -> Section:
    head = ("extension", "task", "wAvg(inc)", "wAvg(dec)", f"over {LLAMA_2:.3g}", f"{OWN:.0%} of its own")
    rows = [_reached(comparison, each, name) for name in names for each in ordered(comparison)]
    return Section(REACH, ABOUT_REACH, head, tuple(rows))


def _reached(comparison: Comparison, each: Candidate, name: str) -> tuple[str, ...]:
    found = reach(comparison, each, name)
    lengths = (_length(comparison, length) for length in (found.fixed, found.own))
    return each.line, name, f"{found.rising:.2f}", f"{found.falling:.2f}", *lengths


def _length(comparison: Comparison, length: int | None) -> str:
    return f"below {comparison.lengths[0]:,}" if length is None else f"{length:,}"


def estimated(found: Estimate) -> str:
    """A number with its interval, where it has one."""
    interval = f" [{found.low:.2f}, {found.high:.2f}]"
    return f"{found.value:.2f}" + (interval if math.isfinite(found.high - found.low) else "")
