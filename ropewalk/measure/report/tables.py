"""The table of a comparison, for a terminal and for a page: the same cells, written once."""

from __future__ import annotations

import math

from rich.table import Table as RichTable

from ropewalk.extension.extension import Extension
from ropewalk.hf.attach.handle import UNUSED
from ropewalk.hf.probe.facts import DROPPED
from ropewalk.measure.comparison.comparison import Candidate, Comparison
from ropewalk.measure.comparison.runner import OUT_OF_MEMORY, WORKER_DIED
from ropewalk.measure.comparison.verdict import BREAK, FINDS, INFINITE, NAN
from ropewalk.measure.metrics.intervals import BY_CHANCE, Estimate, groups_of
from ropewalk.measure.report.drawing.names import name_of
from ropewalk.measure.report.html_page import PageTable
from ropewalk.measure.report.titles import of_projects
from ropewalk.measure.tasks import Context, Task

LEGEND = (
    "loss: mean over {tokens}, in nats per token, as the context grows. loss minus base: at the longest length, minus"
    " the base model's {standard}; below 0 is better.{asked} short damage: loss added to texts of the trained length."
    " time, cache: longest length."
)
CORRECT = "share correct at the longest length"
ASKED = {  # what a column of correct answers says
    "far": "far found: of the secret numbers farther away than the trained length, the share found",
    "copied": "copied: accuracy on a passage from the text's beginning, repeated after it",
}
PAGE_NOTES = (
    "verdict: better with context, the whole interval is below 0, here and in the last tokens, for which the base model"
    " too has seen nearly a trained length of text; no better than a window, it is below 0 here, but not there;"
    f" worse, it is above 0; breaks, it is above {BREAK}; unchanged, it includes 0 and stays within {BREAK} of 0;"
    " else there are not enough texts to tell",
    f"finds passkeys, or what is far: the interval of the share at the longest length is above {FINDS:.0%}; misses"
    " them: below it",
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
    "The {texts} texts are{projects}. Intervals are over texts. Texts of one project are alike, so the intervals are"
    " too narrow for texts of other projects."
)
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


def table(comparison: Comparison) -> PageTable:
    """One row for each candidate, the lowest loss first."""
    measured = {task.name for task in comparison.tasks}
    head = ["extension", *(f"loss at {short(length)}" for length in comparison.lengths), change_head(comparison)]
    head += ["passkey"] * ("passkey" in measured) + ["repeated"] * ("repetition" in measured)
    head += [ANSWERS[name] for name in answered(comparison)]
    head += [task.title for task in extra_tasks(comparison)]
    head += ["short damage"] * has_harm(comparison) + ["time", "cache", "verdict"]
    rows = (tuple(_cells(comparison, candidate, measured)) for candidate in ranked(comparison))
    return PageTable(tuple(head), tuple(rows), ends_in_words=True)


def extra_tasks(comparison: Comparison) -> list[Task]:
    """The tasks that are not measured by default."""
    return [task for task in comparison.tasks if task.name not in BY_DEFAULT]


def answered(comparison: Comparison) -> list[str]:
    """Which answers the texts of the losses give too."""
    row = comparison.base.at(Context.name, comparison.lengths[-1])
    return [name for name in ANSWERS if row and name in row.numbers]


def has_harm(comparison: Comparison) -> bool:
    """Whether the harm to short texts is known of any candidate."""
    return any(candidate.harm.of for candidate in comparison.candidates)


def _cells(comparison: Comparison, candidate: Candidate, measured: set[str]) -> list[str]:
    lengths = comparison.lengths
    cells = [name_of(candidate.line), *(_number(candidate, "context", length, "loss") for length in lengths)]
    cells.append(interval(candidate.change))
    if "passkey" in measured:
        cells.append(" ".join(_percent(candidate, "passkey", length, "right") for length in lengths))
    if "repetition" in measured:
        cells.append(_percent(candidate, "repetition", lengths[-1], "accuracy"))
    cells += [_percent(candidate, "context", lengths[-1], name) for name in answered(comparison)]
    for task in extra_tasks(comparison):
        cells.append(" ".join(_headline(candidate, task, length) for length in lengths))
    if has_harm(comparison):
        cells.append(_short_damage(comparison, candidate))
    return [*cells, times_as_long(candidate.slowdown), size(candidate.cache_bytes), candidate.verdict.words]


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
    read = len(projects)
    if read <= ALIKE * len(set(projects)):
        return ()
    note = ALIKE_NOTE if groups_of(projects) is None else OVER_PROJECTS_NOTE
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
    line = "+".join(specs) + layers
    return line if len(line) <= width else line[: width - 3] + "..."


def interval(estimate: Estimate) -> str:
    """A difference with its interval."""
    if not math.isfinite(estimate.value):
        return "-"
    if math.isinf(estimate.low):
        return f"{signed(estimate.value)} [one text]"
    return f"{signed(estimate.value)} [{signed(estimate.low)}, {signed(estimate.high)}]"


def signed(value: float) -> str:
    """A difference with its sign; 0.00 and NaN have none."""
    if math.isnan(value):
        return "NaN"
    text = f"{value:+.2f}"
    return text if float(text) else "0.00"


def change_head(comparison: Comparison) -> str:
    """The head of the differences, from the base model's loss at its trained length, or under a window of it."""
    return f"loss minus base {standard(comparison)} [95% CI]"


def size(count: int) -> str:
    """Bytes in a readable unit."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.3g} {unit}"
        count /= 1024  # type: ignore[assignment]
    return f"{count:.3g} GiB"


def short(length: int) -> str:
    """A length in few characters."""
    return f"{length // 1024}k" if length % 1024 == 0 else str(length)


def terminal(comparison: Comparison) -> RichTable:
    """The table for a terminal of 80 columns: all losses in one column, the verdicts in a second table."""
    lengths = comparison.lengths
    drawn = RichTable(title=title(comparison), title_justify="left", box=None, padding=(0, 1, 0, 0))
    losses = f"loss at {'/'.join(short(length) for length in lengths)}"
    measured = {task.name for task in comparison.tasks}
    names = [name for name, task in COLUMNS.items() if task in measured]
    names += [ANSWERS[name] for name in answered(comparison)] + ["short damage"] * has_harm(comparison)
    for name in ("extension", losses, *names, "time", "cache"):
        drawn.add_column(name, justify="left" if name == "extension" else "right", overflow="fold")
    for candidate in ranked(comparison):
        cells = {
            "passkey": _percent(candidate, "passkey", lengths[-1], "right"),
            "repeated": _percent(candidate, "repetition", lengths[-1], "accuracy"),
            "short damage": _short_damage(comparison, candidate),
            **{head: _percent(candidate, "context", lengths[-1], name) for name, head in ANSWERS.items()},
        }
        numbers = " ".join(_number(candidate, "context", length, "loss") for length in lengths)
        costs = times_as_long(candidate.slowdown), size(candidate.cache_bytes)
        drawn.add_row(name_of(candidate.line), numbers, *(cells[name] for name in names), *costs)
    return drawn


def terminal_extras(comparison: Comparison) -> list[RichTable]:
    """One table for each task that is not measured by default."""
    return [_terminal_of(comparison, task) for task in extra_tasks(comparison)]


def _terminal_of(comparison: Comparison, task: Task) -> RichTable:
    drawn = RichTable(title=f"{task.title}: {task.headline}", title_justify="left", box=None, padding=(0, 1, 0, 0))
    drawn.add_column("extension", overflow="fold")
    for length in comparison.lengths:
        drawn.add_column(short(length), justify="right")
    for candidate in ordered(comparison):
        cells = (_headline(candidate, task, length) for length in comparison.lengths)
        drawn.add_row(name_of(candidate.line), *cells)
    return drawn


def times_as_long(slowdown: float) -> str:
    """`1.3x`; a dash where it is not known."""
    return "-" if math.isnan(slowdown) else f"{slowdown:.1f}x"


def verdicts(comparison: Comparison) -> RichTable:
    """A row for each candidate, in the same order: the change with its interval, and the verdict."""
    drawn = RichTable("extension", change_head(comparison), "verdict", box=None, padding=(0, 1, 0, 0))
    for candidate in ranked(comparison):
        drawn.add_row(name_of(candidate.line), interval(candidate.change), candidate.verdict.words)
    return drawn


def ordered(comparison: Comparison) -> list[Candidate]:
    """The lowest loss first."""
    return sorted(comparison.candidates, key=lambda candidate: candidate.rank)


def ranked(comparison: Comparison) -> list[Candidate]:
    """The rows of tables: among the candidates what every user has already, the last tokens alone."""
    alone = [comparison.last_alone] if comparison.last_alone else []
    return sorted([*alone, *comparison.candidates], key=lambda candidate: candidate.rank)


def _short_damage(comparison: Comparison, candidate: Candidate) -> str:
    trained = comparison.trained_len
    marked = mark(candidate, "damage", trained) or mark(candidate, "context", trained)
    return signed(candidate.harm.value) if candidate.harm.of else marked or "-"


def title(comparison: Comparison) -> str:
    """What was compared."""
    lengths = ", ".join(f"{length:,}" for length in comparison.lengths)
    return f"Trained on {comparison.trained_len:,} tokens, measured at {lengths}"


def _number(candidate: Candidate, task: str, length: int, name: str) -> str:
    row = candidate.at(task, length)
    return f"{row.numbers[name].value:.2f}" if row else mark(candidate, task, length)


def _headline(candidate: Candidate, task: Task, length: int) -> str:
    """The main number of a task; a share in percent."""
    return (_percent if task.scored else _number)(candidate, task.title, length, task.headline)


def _percent(candidate: Candidate, task: str, length: int, name: str) -> str:
    row = candidate.at(task, length)
    return (
        f"{100 * row.numbers[name].value:.0f}%" if row and name in row.numbers else mark(candidate, task, length) or "-"
    )
