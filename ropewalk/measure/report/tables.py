"""The tables of a comparison, for a terminal and for a page: each column is its head and what writes its cells."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeAlias

from rich.table import Table

from ropewalk.extension.extension import Extension
from ropewalk.hf.attach.handle import UNUSED
from ropewalk.hf.probe.facts import DROPPED
from ropewalk.measure.comparison.changes import change_by_cache
from ropewalk.measure.comparison.comparison import Candidate, Comparison
from ropewalk.measure.comparison.runner import OUT_OF_MEMORY, WORKER_DIED
from ropewalk.measure.comparison.verdict import BREAK, FINDS, INFINITE, NAN
from ropewalk.measure.metrics.intervals import BY_CHANCE, FEW_PROJECTS, Estimate, too_few_projects
from ropewalk.measure.report.drawing.names import name_of
from ropewalk.measure.report.titles import of_projects
from ropewalk.measure.report.written_tables import PageTable
from ropewalk.measure.tasks import Context, Passkey, QuantisedCache, Task

LEGEND = (
    "loss: mean over {tokens}, in nats per token, as the context grows. loss minus base: at the longest length, minus"
    " the base model's {standard}; below 0 is better.{asked} short damage: loss added to all tokens of"
    " texts of the trained length. time, cache: longest length."
)
UNDER_CACHES = "with keys and values rounded, as a quantised cache does"
CORRECT = "share correct at the longest length"
ASKED = {  # what a column of correct answers says
    "far": "far found: of the secret numbers farther away than the trained length, the share found",
    "copied": "copied: accuracy on a passage from the text's beginning, repeated after it",
}
PAGE_NOTES = (
    "verdict: better with context, the whole interval is below 0, here and in the last tokens, for which the base model"
    " too has seen nearly a trained length of text; no better than a window, it is below 0 here, but not there;"
    f" worse, it is above 0; breaks, it is above {BREAK}; unchanged, it includes 0 and stays within {BREAK} of 0;"
    " else there are not enough texts to tell, or they are of too few projects",
    f"finds passkeys: the interval of the share at the longest length is above {FINDS:.0%}; misses passkeys: below it."
    " Of what is far the share that is found is said",
    "time: relative to the base model; on a CPU it is processor time",
    "columns with several numbers have one for each length",
)
OWN_SCHEDULE = "The checkpoint has its own schedule, {own}. Schedules build on it; with +instead they replace it."
NO_ROTATION = "The checkpoint's rotation was dropped. What only changes rotation is refused; +instead rotates again."
TRAINED_UNDER = "The base model was trained under {extension}. A candidate replaces what it names and keeps the rest."
SAME, OTHER = "the same final tokens", "the final tokens of each text"
OTHER_TOKENS = (
    "A text of the trained length is too short for all scored tokens, which are {counts}. So losses compare at one"
    " length, and not between lengths. They are compared with the base model's loss on the tokens of the longest"
    " length, each read under a window of {trained:,}."
)
MANY_TRIED = 5  # extensions, from which on chance is worth a word
MANY_NOTE = (
    "Each verdict is for one extension alone: of {count} that change nothing, {expected:.1f} are expected to seem"
    " better by chance. To be sure of the best, compare it alone on another corpus."
)
ALIKE = 1.5  # texts a project, from which on that is worth a word
ALIKE_NOTE = (
    "The {texts} texts are{projects}. Texts of one project are alike, so means over texts have an interval only where"
    f" there are at least {FEW_PROJECTS} projects."
)
MORE_PROJECTS = "take a corpus with more projects, which are packages, or files and folders at the top of a folder"
OVER_PROJECTS_NOTE = "The {texts} texts are{projects}. Intervals are over projects, since texts of one are alike."
FAILURE_NOTES = {
    OUT_OF_MEMORY: "mem: out of memory; run the same command to retry.",
    WORKER_DIED: "died: every worker that tried it died, often for memory; run the same command to retry.",
}
NO_LOSS_NOTE = (
    f"{NAN}, {INFINITE}: the model computes no probabilities there, on one text or more. Such a line has no verdict,"
    " and is neither the best nor a rival."
)

SHORT_REASON = {OUT_OF_MEMORY: "mem", WORKER_DIED: "died"}  # why a cell has no number
ANSWERS = {"far": "far found", "copied": "copied"}  # of the texts whose losses are compared
COLUMNS = {"passkey": "passkey", "repeated": "repetition"}  # of tasks that have a column of their own
BY_DEFAULT = ("context", "repetition", "passkey", "damage")


Column: TypeAlias = tuple[str, Callable[[Candidate], str]]  # its head, and the cell of a candidate


def table(comparison: Comparison) -> PageTable:
    """For a page: every loss and the verdict in one row of each candidate, the lowest loss first."""
    columns: list[Column] = [
        *((f"loss at {short(length)}", _losses([length])) for length in comparison.lengths),
        _change(comparison),
        *_shares(comparison, comparison.lengths),
        *((task.title, _headlines(task, lengths_of(comparison, task))) for task in extra_tasks(comparison)),
        *_costs(comparison),
        VERDICT,
    ]
    return _filled(ranked(comparison), columns, ends_in_words=True)


def terminal(comparison: Comparison) -> list[Table]:
    """The same for 80 columns: all losses in one column, the tasks that are not measured by default, the verdicts."""
    lengths = comparison.lengths
    losses = f"loss at {'/'.join(short(length) for length in lengths)}", _losses(lengths)
    every = [losses, *_shares(comparison, lengths[-1:]), *_costs(comparison)]
    return [
        _filled(ranked(comparison), every).for_terminal(title(comparison)),
        *([under_caches(comparison).for_terminal(UNDER_CACHES, words=(0, 1))] if caches(comparison) else []),
        *(_of_task(comparison, task) for task in extra_tasks(comparison) if task not in caches(comparison)),
        _filled(ranked(comparison), [_change(comparison), VERDICT]).for_terminal(words=range(3), long="ellipsis"),
    ]


def _of_task(comparison: Comparison, task: Task) -> Table:
    columns: list[Column] = [(short(length), _headlines(task, [length])) for length in lengths_of(comparison, task)]
    return _filled(ordered(comparison), columns).for_terminal(f"{task.title}: {task.headline}")


def lengths_of(comparison: Comparison, task: Task) -> tuple[int, ...]:
    """The lengths at which a task is measured."""
    return task.at(comparison.lengths, comparison.trained_len)


def caches(comparison: Comparison) -> list[QuantisedCache]:
    """The tasks that round keys and values."""
    return [task for task in comparison.tasks if isinstance(task, QuantisedCache)]


def under_caches(comparison: Comparison) -> PageTable:
    """At the longest length, the loss of each candidate with each quantised cache, and what is found far away."""
    longest = comparison.lengths[-1]
    far = "far" in answered(comparison)
    head = (
        "extension",
        "cache",
        f"loss at {short(longest)}",
        "minus exact [95% CI]",
        *([ANSWERS["far"]] if far else []),
    )
    rows = (
        (
            name_of(one.line),
            task.kind,
            _number(one, task.title, longest, "loss"),
            interval(change_by_cache(one, task, longest), digits=3),
            *([_percent(one, task.title, longest, "far")] if far else []),
        )
        for one in ordered(comparison)
        for task in caches(comparison)
    )
    return PageTable(head, tuple(rows))


def _filled(candidates: Sequence[Candidate], columns: Sequence[Column], *, ends_in_words: bool = False) -> PageTable:
    """A row for each candidate, which begins with its name."""
    rows = ((name_of(one.line), *(cell(one) for _, cell in columns)) for one in candidates)
    return PageTable(("extension", *(head for head, _ in columns)), tuple(rows), ends_in_words)


def _losses(lengths: Sequence[int]) -> Callable[[Candidate], str]:
    return lambda one: " ".join(_number(one, Context.name, length, "loss") for length in lengths)


def _headlines(task: Task, lengths: Sequence[int]) -> Callable[[Candidate], str]:
    """The main number of a task at some lengths; a share in percent."""
    written = _percent if task.scored or task.name in COLUMNS.values() else _number
    return lambda one: " ".join(written(one, task.title, length, task.headline) for length in lengths)


def _change(comparison: Comparison) -> Column:
    return change_head(comparison), lambda one: interval(one.change)


VERDICT: Column = "verdict", lambda one: one.verdict.words


def _shares(comparison: Comparison, lengths: Sequence[int]) -> Iterator[Column]:
    """What is right, of the tasks that have a column of their own and of the texts whose losses are compared."""
    longest, measured = comparison.lengths[-1], {task.name: task for task in comparison.tasks}
    for name, task in COLUMNS.items():
        if task in measured:
            yield name, _headlines(measured[task], lengths if task == Passkey.name else [longest])
    for name in answered(comparison):
        yield ANSWERS[name], partial(_percent, task=Context.name, length=longest, name=name)


def _costs(comparison: Comparison) -> Iterator[Column]:
    if any(candidate.harm.of for candidate in comparison.candidates):
        yield "short damage", partial(_short_damage, comparison.trained_len)
    yield "time", lambda one: times_as_long(one.slowdown)
    yield "cache", lambda one: size(one.cache_bytes)


def extra_tasks(comparison: Comparison) -> list[Task]:
    """The tasks that are not measured by default."""
    return [task for task in comparison.tasks if task.name not in BY_DEFAULT]


def answered(comparison: Comparison) -> list[str]:
    """Which answers the texts of the losses give too."""
    row = comparison.base.at(Context.name, comparison.lengths[-1])
    return [name for name in ANSWERS if row and name in row.numbers]


def mark(candidate: Candidate, task: str, length: int) -> str:
    """What replaces a number that could not be measured; empty where it was not tried."""
    return SHORT_REASON.get(candidate.failed(task, length), "")


def notes(comparison: Comparison) -> tuple[str, ...]:
    """The legend, and what is special about this model or this run."""
    return (legend(comparison), *remarks(comparison))


def legend(comparison: Comparison) -> str:
    """What the columns are."""
    columns = ", ".join(name for name, task in COLUMNS.items() if task in {task.name for task in comparison.tasks})
    asked = [*([f"{columns}: {CORRECT}"] if columns else []), *(ASKED[name] for name in answered(comparison))]
    tokens, words = OTHER if comparison.by_window else SAME, "".join(f" {words}." for words in asked)
    return LEGEND.format(tokens=tokens, standard=standard(comparison), asked=words)


def page_notes(comparison: Comparison) -> tuple[str, ...]:
    """The notes with the rules of the verdicts, for which a terminal has no room."""
    return (legend(comparison), *PAGE_NOTES, *remarks(comparison))


def remarks(comparison: Comparison) -> tuple[str, ...]:
    """What is special about this model or this run."""
    trained_under = TRAINED_UNDER.format(extension=brief(comparison.trained_under))
    schedule, tried = comparison.own_schedule, len(comparison.candidates) - 1
    failed = {row.failed for one in comparison.candidates for row in one.failures}
    return (
        other_tokens(comparison)
        + (NO_ROTATION if schedule == DROPPED else OWN_SCHEDULE.format(own=schedule),) * bool(schedule)
        + (trained_under,) * (comparison.trained_under != Extension())
        + _idle(comparison)
        + (MANY_NOTE.format(count=tried, expected=tried * BY_CHANCE),) * (tried >= MANY_TRIED)
        + _of_alike_texts(comparison.projects)
        + tuple(note for why, note in FAILURE_NOTES.items() if why in failed)
        + (NO_LOSS_NOTE,) * any(candidate.verdict.kind in (NAN, INFINITE) for candidate in comparison.candidates)
    )


def _idle(comparison: Comparison) -> tuple[str, ...]:
    """The parts of extensions that no layer of the model uses."""
    rows = [f"{' and '.join(one.idle)} of {name_of(one.line)}" for one in comparison.candidates if one.idle]
    return (f"Used in no layer: {'; '.join(rows)}. The reason: {UNUSED}.",) if rows else ()


def _of_alike_texts(projects: tuple[str, ...]) -> tuple[str, ...]:
    """A note where several texts are of one project."""
    read, few = len(projects), too_few_projects(projects)
    if read <= ALIKE * len(set(projects)) and not few:
        return ()
    note = ALIKE_NOTE if few else OVER_PROJECTS_NOTE
    return (note.format(texts=read, projects=of_projects(projects)),)


def other_tokens(comparison: Comparison) -> tuple[str, ...]:
    """A note for tables whose lengths score different tokens: it says what every loss is compared with."""
    context, trained = comparison.context, comparison.trained_len
    if context is None or not comparison.by_window:
        return ()
    counts = ", ".join(f"{context.last_of(trained, length):,} at {length:,}" for length in comparison.lengths)
    return (OTHER_TOKENS.format(counts=counts, trained=trained),)


def standard(comparison: Comparison) -> str:
    """What losses at the longest length are compared with."""
    how = "under a window of" if comparison.by_window else "at"
    return f"{how} {comparison.trained_len:,}"


def brief(extension: Extension, width: int = 110) -> str:
    """An extension in one line of limited length."""
    specs = [str(spec) for specs in extension.specs.values() for spec in specs]
    layers = f" ({len(extension.layer_items)} layers differ)" if extension.layers else ""
    heads = f" ({len(extension.head_items)} key heads differ)" if extension.heads else ""
    line = "+".join(specs) + layers + heads
    return line if len(line) <= width else line[: width - 3] + "..."


def interval(estimate: Estimate, digits: int = 2) -> str:
    """A difference with its interval."""
    if not math.isfinite(estimate.value):
        return "-"
    value, low, high = (signed(number, digits) for number in estimate[:3])
    return f"{value} [{estimate.why_open or f'{low}, {high}'}]"


def estimated(estimate: Estimate) -> str:
    """A number with its interval, where it has one."""
    value, low, high = (f"{number:.2f}" if round(number, 2) else "0.00" for number in estimate[:3])
    interval = f" [{low}, {high}]"
    return value + (interval if math.isfinite(estimate.high - estimate.low) else "")


def signed(value: float, digits: int = 2) -> str:
    """A difference with its sign; 0.00 and NaN have none."""
    if math.isnan(value):
        return "NaN"
    text = f"{value:+.{digits}f}"
    return text if float(text) else text[1:]


def change_head(comparison: Comparison) -> str:
    """The head of the differences, from the base model's loss at its trained length, or under a window of it."""
    return f"loss minus base {standard(comparison)} [95% CI]"


def size(count: float) -> str:
    """Bytes in a readable unit, of three digits at most."""
    unit = 0
    while count >= 999.5 and unit < 4:
        count, unit = count / 1024, unit + 1
    return f"{count:.3g} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[unit]}"


def short(length: int) -> str:
    """A length in few characters."""
    return f"{length // 1024}k" if length % 1024 == 0 else str(length)


def times_as_long(slowdown: float) -> str:
    """`1.3x`; a dash where it is not known."""
    return "-" if math.isnan(slowdown) else f"{slowdown:.1f}x"


def ordered(comparison: Comparison) -> list[Candidate]:
    """The lowest loss first."""
    return sorted(comparison.candidates, key=lambda candidate: candidate.rank)


def ranked(comparison: Comparison) -> list[Candidate]:
    """The rows of tables: among the candidates what every user has already, the last tokens alone."""
    alone = [comparison.last_alone] if comparison.last_alone else []
    return sorted([*alone, *comparison.candidates], key=lambda candidate: candidate.rank)


def _short_damage(trained: int, candidate: Candidate) -> str:
    marked = mark(candidate, "damage", trained) or mark(candidate, "context", trained)
    return signed(candidate.harm.value) if candidate.harm.of else marked or "-"


def title(comparison: Comparison) -> str:
    """What was compared."""
    lengths = ", ".join(f"{length:,}" for length in comparison.lengths)
    return f"Trained on {comparison.trained_len:,} tokens, measured at {lengths}"


def _number(candidate: Candidate, task: str, length: int, name: str) -> str:
    row = candidate.at(task, length)
    return f"{row.numbers[name].value:.2f}" if row else mark(candidate, task, length)


def _percent(candidate: Candidate, task: str, length: int, name: str) -> str:
    row = candidate.at(task, length)
    return (
        f"{100 * row.numbers[name].value:.0f}%" if row and name in row.numbers else mark(candidate, task, length) or "-"
    )
