"""Which extension to use, and why, in one or two sentences."""

from __future__ import annotations

from ropewalk.measure.comparison.comparison import Candidate, Comparison, name_of_hidden
from ropewalk.measure.comparison.runner import OUT_OF_MEMORY, ResultRow
from ropewalk.measure.comparison.verdict import BREAKS, FEW, SAME_LOSS_ATOL, UNCHANGED, UNCLEAR
from ropewalk.measure.report.drawing.names import name_of
from ropewalk.measure.report.tables import MORE_PROJECTS, interval
from ropewalk.measure.report.titles import of_projects, texts
from ropewalk.measure.tasks import Context, Passkey

NOT_ASKED = "Whether what is farther away is found was not asked: leave --tasks out, or add passkey to it."


def advice(comparison: Comparison) -> str:
    """Which extension to use, and why, in one or two sentences."""
    best, length = comparison.best, f"{comparison.lengths[-1]:,} tokens"
    with_loss = [candidate for candidate in comparison.candidates if candidate.has_loss]
    if not with_loss:
        return _no_loss(comparison, length)
    if all(candidate.verdict.kind == FEW for candidate in with_loss):
        return _of_too_few_projects(comparison, length)
    if all(candidate.verdict.kind == UNCLEAR for candidate in with_loss):
        return f"There are not enough texts for a verdict: {_more_texts(comparison)}."
    if best.verdict.kind == BREAKS:
        return _nothing_holds(comparison, length)
    if (far := _for_what_is_far(comparison, length)) is not None:
        return far
    if best is comparison.base or comparison.gain.high < SAME_LOSS_ATOL:
        return f"Use no extension: none has a lower loss than the base model at {length}."
    if not comparison.gain.clear_of(0):
        chance = f"but its lead over the base model, {interval(comparison.gain)}, may be chance"
        return f"{best.line} has the lowest loss at {length}, {chance}: {_more_texts(comparison)}."
    choice, words = _choice(comparison, length)
    cheap = _small_cache(comparison)
    if cheap is not None and cheap is not choice:
        words += f" If memory must not grow, use {cheap.line}{_brackets(_meaning(comparison, cheap))}."
    return words


def _for_what_is_far(comparison: Comparison, length: str) -> str | None:
    """Where no loss is significantly below that of the last tokens alone: whether what is before them can be used."""
    alone, best = comparison.last_alone, comparison.best
    shares = [(row.numbers["far"], one) for one in comparison.candidates if (row := _far_row(comparison, one))]
    if alone is None or best.change.high < -SAME_LOSS_ATOL:
        return None
    if not shares:
        passkeys = _for_passkeys(comparison, length)
        alone_is_lower = best is not comparison.base and best.change.value > SAME_LOSS_ATOL
        return passkeys or (f"{_none_lower(comparison, length)} {NOT_ASKED}" if alone_is_lower else None)
    words = _none_lower(comparison, length)
    share, finder = max(shares, key=lambda pair: (pair[0].value, -pair[1].rank))
    if share.value == 0 or finder.verdict.kind == BREAKS:
        return f"{words} Nothing here finds what is farther away."
    part = f"{share.value:.0%} [{100 * share.low:.0f}, {100 * share.high:.0f}] of it"
    return f"{words} To use what is farther away, take {name_of(finder.line)}: it finds {part}."


def _for_passkeys(comparison: Comparison, length: str) -> str | None:
    """The same where passkeys were asked for; nothing where no question was."""
    asked_for = any(row.task.name == Passkey.name for row in comparison.base.rows)
    if not asked_for or comparison.best is comparison.base or comparison.gain.high < SAME_LOSS_ATOL:
        return None
    words = _none_lower(comparison, length)
    finders = [one for one in comparison.candidates if comparison.finds(one) and one.verdict.kind != BREAKS]
    if not finders:
        return f"{words} It is not certain that anything here finds passkeys: {_more_texts(comparison)}."
    finder = min(finders, key=lambda one: one.rank)
    return f"{words} To use what is farther away, take {name_of(finder.line)}: it finds {name_of_hidden(finder.rows)}."


def _none_lower(comparison: Comparison, length: str) -> str:
    best = comparison.best
    return (
        f"No loss at {length} is significantly lower than that of the unchanged model on the last"
        f" {comparison.trained_len:,} tokens alone ({name_of(best.line)}: {interval(best.change)})."
    )


def _far_row(comparison: Comparison, candidate: Candidate) -> ResultRow | None:
    row = candidate.at(Context.name, comparison.lengths[-1])
    return row if row and "far" in row.numbers else None


def _of_too_few_projects(comparison: Comparison, length: str) -> str:
    """What there is to say without an interval."""
    read, best = comparison.projects, comparison.best
    name = "the base model" if best is comparison.base else name_of(best.line)
    return (
        f"The {texts(len(read))} are{of_projects(read)}, too few for a verdict: {MORE_PROJECTS}. In these texts {name}"
        f" has the lowest loss at {length}."
    )


def _nothing_holds(comparison: Comparison, length: str) -> str:
    """Nothing to use where the lowest loss is that of a broken model."""
    best = f"even {name_of(comparison.best.line)}, which has the lowest loss, breaks"
    remedy = "Compare other extensions (--all compares every preset that applies), or try a shorter length."
    return f"Nothing here holds at {length}: {best}. {remedy}"


def _no_loss(comparison: Comparison, length: str) -> str:
    """Why there is nothing to choose from."""
    kinds = list(dict.fromkeys(candidate.verdict.kind for candidate in comparison.candidates))
    if kinds == [OUT_OF_MEMORY]:
        return f"No candidate had enough memory for {length}: measure a shorter length."
    return f"No candidate has a finite loss at {length} ({', '.join(kinds)}): try another dtype, or a shorter length."


def _choice(comparison: Comparison, length: str) -> tuple[Candidate, str]:
    """The lowest loss; or one whose loss may be the same, where only that one finds passkeys."""
    best, ties = comparison.best, comparison.ties
    finders = [] if comparison.finds(best) else [tie for tie in ties if comparison.finds(tie)]
    if finders:
        choice = finders[0]
        same = f"{best.line} and {choice.line} have the same loss at {length} within chance"
        meaning = _brackets(_meaning(comparison, choice))
        return choice, f"Use {choice.line}: {same}; {choice.line} also finds {name_of_hidden(choice.rows)}{meaning}."
    words = f"Use {best.line}: it has the lowest loss at {length}{_brackets(_meaning(comparison, best))}."
    words += f" Its lead over {name_of(ties[0].line)} may be chance." if ties else ""
    if best.verdict.kind == UNCLEAR:
        words += f" Whether it gains from the longer context is not clear yet: {_more_texts(comparison)}."
    return best, words


def _meaning(comparison: Comparison, candidate: Candidate) -> str:
    """The verdict, where "unchanged" would be misread; without the part that needs more texts."""
    words = candidate.verdict.words.removeprefix(UNCLEAR).removeprefix(", ")
    level = "that of a window of the trained length" if comparison.by_window else "the trained-length level"
    return words.replace(UNCHANGED, f"its loss stays at {level}", 1)


def _brackets(words: str) -> str:
    return f" ({words})" if words else ""


def _more_texts(comparison: Comparison) -> str:
    samples = max((task.samples for task in comparison.tasks if task.name == Context.name), default=8)
    count = max(16, 2 * samples)
    return f"measure more texts (--samples {count}, or context:samples={count} in --tasks)"


def _small_cache(comparison: Comparison) -> Candidate | None:
    """The best candidate that holds and whose cache is smaller than the base model's."""
    most = comparison.base.cache_bytes
    small = [candidate for candidate in comparison.candidates if candidate.cache_bytes < most and candidate.holds]
    return min(small, key=lambda candidate: candidate.rank, default=None)
