"""The parts of a comparison's page: each task with its figures and every number; the effective lengths; formulas."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

from ropewalk.measure.comparison.comparison import Candidate, Comparison, reach
from ropewalk.measure.metrics.correlation import LLAMA_2, OWN
from ropewalk.measure.report import figures
from ropewalk.measure.report.drawing.charts import ReportFigure
from ropewalk.measure.report.drawing.names import name_of
from ropewalk.measure.report.formulas import formulas
from ropewalk.measure.report.html_page import PagePart
from ropewalk.measure.report.predictions import prediction_part, predictions
from ropewalk.measure.report.score_maps import score_maps
from ropewalk.measure.report.tables import UNDER_CACHES, caches, estimated, mark, ordered, other_tokens, under_caches
from ropewalk.measure.report.written_tables import PageTable
from ropewalk.measure.tasks import Context, Task

CACHES = "quantised caches"
REACH = "effective length"
ABOUT_REACH = (
    "weighted mean: the mean score over lengths, long or short ones weighted more. Then the longest length up to"
    f" which every score is above {LLAMA_2:.1%} (RULER's threshold), or at least {OWN:.0%} of the base model's at its"
    " trained length."
)


FIGURES: Mapping[str, Callable[[Comparison], ReportFigure]] = {  # of tasks without a score
    "repetition": figures.repetition_by_length,
    "damage": figures.damage,
    "perplexity": figures.perplexity_by_length,
    "longppl": figures.longppl_by_length,
}


def parts(comparison: Comparison) -> list[PagePart]:
    """What was measured, task by task; what follows from all tasks, where that is known; and the formulas."""
    scored = dict.fromkeys(task.name for task in comparison.tasks if task.scored)
    drawn = {name: score_maps(comparison, name) for name in scored}
    tasks = [_part_of(comparison, task, drawn) for task in comparison.tasks]
    extensions = {candidate.line: candidate.extension for candidate in comparison.candidates}
    known, longest = predictions(comparison), comparison.lengths[-1]
    return [
        *tasks,
        *([PagePart(CACHES, UNDER_CACHES.capitalize(), (), under_caches(comparison))] if caches(comparison) else []),
        *([_effective_lengths(comparison, drawn)] if drawn else []),
        *([prediction_part(known)] if known else []),
        formulas(extensions, comparison.facts, longest, figures.keys_of(comparison)),
    ]


def _part_of(comparison: Comparison, task: Task, maps: Mapping[str, list[ReportFigure]]) -> PagePart:
    lengths = task.at(comparison.lengths, comparison.trained_len)
    rows = [row for candidate in ordered(comparison) for row in _rows(candidate, task, lengths)]
    head = ("extension", "number", *(f"{length:,}" for length in lengths))
    about = (sys.modules[type(task).__module__].__doc__ or "").partition("\n")[0]
    drawn = [FIGURES[task.name](comparison)] if task.name in FIGURES else []
    if task.title == Context.name:
        about = " ".join([about, *other_tokens(comparison)])
        drawn += [figures.loss_by_length(comparison)] if len(comparison.lengths) > 1 else []
    if len(_titles(comparison, task.name)) == 1:
        drawn += maps.get(task.name, [])
    return PagePart(task.title, about, tuple(drawn), PageTable(head, tuple(rows)))


def _titles(comparison: Comparison, name: str) -> list[str]:
    """The tasks of one name: of several, the maps show the mean, which belongs to none of them."""
    return [task.title for task in comparison.tasks if task.name == name]


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


def _effective_lengths(comparison: Comparison, maps: Mapping[str, list[ReportFigure]]) -> PagePart:
    head = (
        "extension",
        "task",
        "weighted mean, long",
        "weighted mean, short",
        f"above {LLAMA_2:.1%}",
        f"{OWN:.0%} of base model",
    )
    rows = [_effective(comparison, candidate, name) for name in maps for candidate in ordered(comparison)]
    drawn = [one for name, alike in maps.items() if len(_titles(comparison, name)) > 1 for one in alike]
    return PagePart(REACH, ABOUT_REACH, tuple(drawn), PageTable(head, tuple(rows)))


def _effective(comparison: Comparison, candidate: Candidate, name: str) -> tuple[str, ...]:
    result = reach(comparison, candidate, name)
    lengths = (_length(comparison, length) for length in (result.fixed, result.own))
    return name_of(candidate.line), name, f"{result.rising:.2f}", f"{result.falling:.2f}", *lengths


def _length(comparison: Comparison, length: int | None) -> str:
    return f"below {comparison.lengths[0]:,}" if length is None else f"{length:,}"
