"""The table of a comparison, for a terminal and for a page: the same cells, written once."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.table import Table as RichTable

from ropewalk.evaluation.compare.compare import BREAKS, FINDS, HOLDS, Candidate, Comparison
from ropewalk.evaluation.compare.runner import OUT_OF_MEMORY
from ropewalk.evaluation.metrics.intervals import Estimate
from ropewalk.evaluation.tasks import Task
from ropewalk.extension import Extension
from ropewalk.report.sheet import PageTable

NOTES = (
    "loss: nats per token of the same last tokens of each text, with so much text before them",
    "more (text): loss at the longest length less that of the bare model at its trained length, in brackets its 95 %"
    " interval over texts; below 0, the text beyond is used",
    "(pass) keys: share found; (told) again: next-token accuracy where a text is repeated",
    "short: change of the loss within the trained length; time (of the processor on a CPU, against the first that was"
    " measured: bare) and cache: of the longest length",
    f"verdicts on more: breaks, surely above {BREAKS}; loses, surely above 0; a little, or as it was, surely below"
    f" {BREAKS}; uses more text, surely below 0; finds the pass key: {FINDS:.0%} of them and more",
)

SHORTLY = {OUT_OF_MEMORY: "mem"}  # why a cell has no number
OWN_NOTE = "a line says what is other than that, and the rest stays"
MEMORY_NOTE = "mem: memory did not suffice; the same command tries again"
BY_DEFAULT = ("context", "repetition", "passkey", "damage")


def table(comparison: Comparison) -> PageTable:
    """One row for each contender, the lowest loss first."""
    lengths = comparison.lengths
    measured = {task.name for task in comparison.tasks}
    head = ["extension", *(f"loss {_times(comparison, length)}" for length in lengths), "more text"]
    head += ["pass key"] * ("passkey" in measured) + ["told again"] * ("repetition" in measured)
    head += [task.title for task in beside(comparison)]
    head += ["short"] * ("damage" in measured) + ["time", "cache", "verdict"]
    rows = (tuple(_cells(comparison, each, measured)) for each in ordered(comparison))
    return PageTable(tuple(head), tuple(rows), ends_in_words=True)


def beside(comparison: Comparison) -> list[Task]:
    """The tasks that have no column by default."""
    return [task for task in comparison.tasks if task.name not in BY_DEFAULT]


def _cells(comparison: Comparison, each: Candidate, measured: set[str]) -> list[str]:
    lengths = comparison.lengths
    cells = [each.line, *(_number(each, "context", length, "loss") for length in lengths), interval(each.change)]
    if "passkey" in measured:
        cells.append(" ".join(_percent(each, "passkey", length, "right") for length in lengths))
    if "repetition" in measured:
        cells.append(_percent(each, "repetition", lengths[-1], "accuracy"))
    for task in beside(comparison):
        cells.append(" ".join(_headline(each, task, length) for length in lengths))
    if "damage" in measured:
        cells.append(_short(comparison, each))
    return [*cells, _slowdown(each), size(each.cache_bytes), each.verdict.words]


def mark(each: Candidate, task: str, length: int) -> str:
    """What stands in the place of a number that could not be measured; nothing where nobody tried."""
    return SHORTLY.get(each.failed(task, length), "")


OWN_SCHEDULE = "The checkpoint came with {own}: schedules build on it, and those with +instead replace it."


def notes(comparison: Comparison) -> tuple[str, ...]:
    """What the model came with, and what the words of the table mean."""
    own = OWN_SCHEDULE.format(own=comparison.own_schedule)
    trained_under = f"bare: as it was trained, under {brief(comparison.own)}; {OWN_NOTE}"
    return (
        (own,) * bool(comparison.own_schedule)
        + NOTES
        + (trained_under,) * (comparison.own != Extension())
        + (MEMORY_NOTE,) * any(each.failures for each in comparison.contenders)
    )


def brief(extension: Extension, width: int = 110) -> str:
    """An extension in one line that is not too long."""
    specs = [str(spec) for specs in extension.specs.values() for spec in specs]
    layers = f" ({len(extension.overrides)} layers differ)" if extension.layers else ""
    said = "+".join(specs) + layers
    return said if len(said) <= width else said[: width - 3] + "..."


def interval(found: Estimate) -> str:
    """A difference with its interval."""
    if math.isnan(found.value):
        return "-"
    return f"{found.value:+.2f} [{found.low:+.2f}, {found.high:+.2f}]"


def size(count: int) -> str:
    """Bytes for people."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.3g} {unit}"
        count /= 1024  # type: ignore[assignment]
    return f"{count:.3g} GiB"


def terminal(comparison: Comparison) -> RichTable:
    """The table for a terminal of 80 columns: what is shown at every length stands in one column, verdicts apart."""
    lengths = comparison.lengths
    drawn = RichTable(title=title(comparison), title_justify="left", box=None, padding=(0, 1, 0, 0))
    shown = "/".join(_times(comparison, length) for length in lengths)
    for name in ("extension", f"loss at {shown}", "more", "keys", "again", "short", "time", "cache"):
        drawn.add_column(name, justify="left" if name == "extension" else "right", overflow="fold")
    for each in ordered(comparison):
        losses = " ".join(_number(each, "context", length, "loss") for length in lengths)
        drawn.add_row(
            each.line,
            losses,
            "-" if math.isnan(each.change.value) else f"{each.change.value:+.2f}",
            _percent(each, "passkey", lengths[-1], "right"),
            _percent(each, "repetition", lengths[-1], "accuracy"),
            _short(comparison, each),
            _slowdown(each),
            size(each.cache_bytes),
        )
    return drawn


def terminals_beside(comparison: Comparison) -> list[RichTable]:
    """A table for each task that the first has no room for."""
    return [_terminal_of(comparison, task) for task in beside(comparison)]


def _terminal_of(comparison: Comparison, task: Task) -> RichTable:
    shown = RichTable(title=f"{task.title}: {task.headline}", title_justify="left", box=None, padding=(0, 1, 0, 0))
    shown.add_column("extension", overflow="fold")
    for length in comparison.lengths:
        shown.add_column(_times(comparison, length), justify="right")
    for each in ordered(comparison):
        shown.add_row(each.line, *(_headline(each, task, length) for length in comparison.lengths))
    return shown


def _slowdown(each: Candidate) -> str:
    return "-" if math.isnan(each.slowdown) else f"{each.slowdown:.1f}x"


def verdicts(comparison: Comparison) -> list[str]:
    """A line for each contender, in the table's order: the change that decides, with its interval, and what it says."""
    found = [(each.line, interval(each.change), each.verdict.words) for each in ordered(comparison)]
    widest, wide = (max(len(each[column]) for each in found) for column in (0, 1))
    return [f"{line:<{widest}}  {change:<{wide}}  {words}" for line, change, words in found]


def ordered(comparison: Comparison) -> list[Candidate]:
    """The lowest loss first."""
    return sorted(comparison.contenders, key=lambda each: each.rank)


def _short(comparison: Comparison, each: Candidate) -> str:
    found = each.at("damage", comparison.trained_len)
    return f"{found.numbers['loss'].value:+.2f}" if found else mark(each, "damage", comparison.trained_len) or "-"


def title(comparison: Comparison) -> str:
    """What was compared."""
    shown = ", ".join(f"{length:,}" for length in comparison.lengths)
    return f"Trained on {comparison.trained_len:,} tokens, read at {shown}"


def advice(comparison: Comparison) -> str:
    """Which one to use, and why, in a sentence or two."""
    best, bare = comparison.best, comparison.contenders[0]
    if math.isinf(best.rank):
        return "Memory did not suffice for the longest length under any of them: ask for a shorter one."
    if best is bare:
        return "No extension lowers the loss of the bare model at the longest length: use none."
    if not comparison.gain.clear_of(0):
        words = "These texts are too few to tell whether any extension is better than none"
        length, more = f"{comparison.lengths[-1]:,}", interval(comparison.gain)
        return f"{words}: {best.line} has the lowest loss at {length} tokens, the bare model {more} more."
    words = f"Use {best.line}: it has the lowest loss at {comparison.lengths[-1]:,} tokens ({best.verdict.words})."
    if not comparison.lead.low > 0:
        words += f" These texts are too few to tell its lead over {comparison.second.line} from chance."
    cheap = _cheap(comparison.contenders)
    if cheap is not None and cheap is not best:
        words += f" Where memory must not grow, {cheap.line}: {cheap.verdict.words}."
    return words


def _cheap(contenders: Sequence[Candidate]) -> Candidate | None:
    """Of those whose cache is smaller than the bare model's, the best that does not break."""
    small = [each for each in contenders if each.cache_bytes < contenders[0].cache_bytes and each.verdict.kind in HOLDS]
    return min(small, key=lambda each: each.rank, default=None)


def _times(comparison: Comparison, length: int) -> str:
    return f"{length / comparison.trained_len:.3g}x"


def _number(each: Candidate, task: str, length: int, name: str) -> str:
    found = each.at(task, length)
    return f"{found.numbers[name].value:.2f}" if found else mark(each, task, length)


def _headline(each: Candidate, task: Task, length: int) -> str:
    """The number of a task that is shown first; a share in percent."""
    return (_percent if task.scored else _number)(each, task.title, length, task.headline)


def _percent(each: Candidate, task: str, length: int, name: str) -> str:
    found = each.at(task, length)
    return f"{100 * found.numbers[name].value:.0f}%" if found else mark(each, task, length) or "-"
