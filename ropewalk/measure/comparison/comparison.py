"""Several extensions of one model at several lengths, with a verdict for each.

An extension at the longest length is compared with the base model at its trained length, on the same tokens; where a
text of that length is too short to have them, with the base model under a window of it. The verdict says whether the
model breaks, stays as good, or makes use of the longer context.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from ropewalk.errors import Conflict, DoesNotFit, InvalidValue
from ropewalk.extension.extension import Extension
from ropewalk.extension.notation import BARE
from ropewalk.extension.parsing import Line, read_line
from ropewalk.hf.probe.facts import parse_for_config
from ropewalk.hf.use.inspect import Inspection, sizes
from ropewalk.measure.comparison.runner import Measuring, Progress, ResultRow, measure_here, run
from ropewalk.measure.comparison.store import Store, provenance
from ropewalk.measure.comparison.verdict import (
    BREAK,
    FAR_FACTS,
    FINDS,
    NO_ESTIMATE,
    PASSKEYS,
    SAME_LOSS_ATOL,
    UNCHANGED,
    Verdict,
    verdict,
    why_not_finite,
)
from ropewalk.measure.material.subject import Subject
from ropewalk.measure.metrics.correlation import EffectiveLength, effective_length
from ropewalk.measure.metrics.intervals import Estimate, difference, projects_of, share, share_of_answers
from ropewalk.measure.tasks import Context, Damage, Passkey, Task
from ropewalk.measure.tasks.task_line import check_tasks
from ropewalk.methods.facts import Facts
from ropewalk.methods.spec import Json

LINES = ("yarn", "dynamic_yarn", "self_extend+log_n", "rerope+log_n", "streaming")  # a default comparison's
QUESTIONS = 8  # of each of its texts


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One extension of a comparison."""

    line: str
    extension: Extension
    rows: tuple[ResultRow, ...]  # what was measured
    failures: tuple[ResultRow, ...]  # what could not be measured
    change: Estimate  # loss at the longest length, minus the base model's at its trained length, on the same tokens
    over_window: Estimate  # the same, of tokens for which the base model too has seen most of a trained length
    cache_bytes: int  # for one text of the longest length
    slowdown: float  # seconds at the longest length, over those of the base model; NaN if they are of other devices
    verdict: Verdict
    idle: tuple[str, ...] = ()  # the slots of its extension that no layer uses
    harm: Estimate = NO_ESTIMATE  # the rise of the loss in texts of the trained length

    def at(self, task: str, length: int) -> ResultRow | None:
        """The results of a task at a length."""
        return _find(self.rows, task, length)

    def failed(self, task: str, length: int) -> str:
        """Why a task has no results at a length; empty where it has, or was not tried."""
        row = _find(self.failures, task, length)
        return row.failed if row else ""

    @property
    def rank(self) -> float:
        """The change, by which candidates are sorted; those without a finite loss come last."""
        return self.change.value if self.has_loss else math.inf

    @property
    def has_loss(self) -> bool:
        """Whether it was measured at the longest length, and every loss is a finite number."""
        return math.isfinite(self.change.value)

    @property
    def holds(self) -> bool:
        """Whether the loss surely stays below that of a model that breaks."""
        return self.change.high < BREAK

    def scores(self, name: str) -> dict[int, float]:
        """The mean score at each length over all tasks of one name, such as RULER's kinds."""
        scores: dict[int, list[float]] = {}
        for row in self.rows:
            if row.task.name == name:
                scores.setdefault(row.length, []).append(row.numbers[row.task.headline].value)
        return {length: sum(values) / len(values) for length, values in scores.items()}


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """All candidates with their results, and everything needed to repeat the comparison."""

    facts: Facts
    lengths: tuple[int, ...]
    candidates: tuple[Candidate, ...]  # the base model first
    tasks: tuple[Task, ...]
    marks: dict[str, str]
    made: Json
    projects: tuple[str, ...] = ()  # of the texts whose losses are compared, one for each; texts of one are alike
    own_schedule: str = ""  # of the checkpoint, where it is not plain RoPE
    trained_under: Extension = field(default_factory=Extension)  # the extension that the base model was trained with
    last_alone: Candidate | None = None  # the unchanged model on as many last tokens as it was trained on

    @property
    def trained_len(self) -> int:
        """The length at which the base model sets the standard."""
        return self.facts.trained_len

    @property
    def groups(self) -> Sequence[str] | None:
        """The groups that texts are drawn in, their projects; none where these are not known."""
        return self.projects or None

    @property
    def context(self) -> Context | None:
        """The task whose losses are compared."""
        return next((task for task in self.tasks if isinstance(task, Context) and task.title == Context.name), None)

    @property
    def by_window(self) -> bool:
        """Whether texts of the trained length lack some scored tokens: the standard then reads them under a window."""
        return self.context is not None and self.standard_at(self.lengths[-1]) != "loss"

    def standard_at(self, length: int) -> str:
        """Which number of the base model at its trained length is of the tokens scored at a length; empty for none."""
        return self.context.standard(self.trained_len, length, self.lengths[-1]) if self.context else ""

    @property
    def base(self) -> Candidate:
        """The model without an extension."""
        return self.candidates[0]

    @property
    def best(self) -> Candidate:
        """The lowest loss at the longest length; the base model where there is no finite one."""
        return min(self.candidates, key=lambda candidate: candidate.rank)

    @property
    def ties(self) -> list[Candidate]:
        """The candidates whose lead by the best one may be chance, the lowest loss first."""
        others = sorted(self.candidates, key=lambda candidate: candidate.rank)[1:]
        leads = ((other, self.lead_over(other)) for other in others if other is not self.base)
        return [other for other, lead in leads if math.isfinite(lead.value) and not lead.low > SAME_LOSS_ATOL]

    def finds(self, candidate: Candidate) -> bool:
        """Whether a candidate finds passkeys at the longest length, or what is far."""
        keys = far_share(candidate.rows, self.lengths[-1])
        return keys is not None and keys.low > FINDS

    @property
    def gain(self) -> Estimate:
        """By how much the base model's loss at the longest length is above the best one's, on the same texts."""
        return self.lead_over(self.base)

    def lead_over(self, other: Candidate) -> Estimate:
        """By how much a candidate's loss at the longest length is above the best one's, on the same texts."""
        rows = (candidate.at(Context.name, self.lengths[-1]) for candidate in (other, self.best))
        losses = [_losses(row) if row and not row.failed else [] for row in rows]
        return difference(*losses, groups=self.groups) if all(losses) else NO_ESTIMATE

    @property
    def seconds(self) -> float:
        """Of measuring, summed over the cells, whenever and wherever they were measured."""
        return sum(row.seconds for candidate in self.candidates for row in candidate.rows)


def reach(comparison: Comparison, candidate: Candidate, name: str) -> EffectiveLength:
    """The effective length of a candidate at the tasks of a name; none where it ran out of memory at every length."""
    standard = comparison.base.scores(name).get(comparison.trained_len, 0.0)
    return effective_length(candidate.scores(name) or {comparison.trained_len: 0.0}, standard)


def tasks_of(samples: int) -> tuple[Task, ...]:
    """What is measured by default: one reading of each text answers everything."""
    return (Context(samples=samples, questions=QUESTIONS),)


def measure_candidates(
    subject: Subject,
    lines: Sequence[str | Line],
    lengths: Sequence[int],
    store: Store,
    *,
    tasks: Sequence[Task] | None = None,
    measuring: Measuring = measure_here,
    progress: Progress = lambda cell, result: None,
    only_longest: bool = False,
    fitted_to: int | None = None,
) -> Comparison:
    """Measure what is missing in the store. The base model is always the first candidate.

    `only_longest`: the others read texts of the longest length alone. `fitted_to`: the target length of extensions,
    where longer texts than these are to follow.
    """
    tasks = check_tasks(tasks or tasks_of(8), 8)
    lengths = sorted({subject.facts.trained_len, *lengths})
    target = lengths[-1]
    config = subject.model.config.get_text_config()
    fitted = fitted_to or target
    parsed = {
        name: parse_for_config(config, line, fitted, subject.facts) for name, line in lines_by_name(lines).items()
    }
    extensions = {BARE: Extension()} | {line: one for line, one in parsed.items() if one != Extension()}
    ready = [task.prepared(subject, store.path.parent) for task in tasks]
    how: dict[str, Any] = {"measuring": measuring, "progress": progress, "only_longest": only_longest}
    rows = run(subject, list(extensions.values()), ready, lengths, store, **how)
    standard = _standard(rows, subject.facts.trained_len)
    facts = sizes(subject.model, target_len=target)
    candidates = [_candidate(subject, line, one, rows, standard, target, facts) for line, one in extensions.items()]
    context = cast(Context, standard.task)
    alone = context.standard(facts.facts.trained_len, target, target) == "loss" and target > lengths[0]
    texts = max((task.samples for task in tasks if task.name == Context.name), default=0)
    return Comparison(
        facts=subject.facts,
        lengths=tuple(lengths),
        candidates=tuple(candidates),
        tasks=tasks,
        marks=subject.marks,
        made={**provenance(), **subject.described(max(task.samples for task in tasks))},
        projects=tuple(subject.projects(texts)),
        own_schedule=facts.own_schedule,
        trained_under=subject.own.extension,
        last_alone=_last_alone(candidates[0], standard, facts) if alone else None,
    )


def lines_by_name(lines: Sequence[str | Line]) -> dict[str, Line]:
    """Lines by their names, by which all numbers are found: one name has one meaning."""
    named: dict[str, Line] = {}
    for line in map(read_line, lines):
        if line.text == BARE:
            rule = f"names other than {BARE!r}, which is that of the base model, always measured"
            raise InvalidValue("extensions", rule, line.text, remedy="choose another name")
        if named.setdefault(line.text, line) != line:
            sentence = f"two different extensions have the name {line.text!r}"
            raise Conflict.because("extensions", sentence, remedy="name one of them otherwise")
    return named


def _candidate(
    subject: Subject,
    line: str,
    extension: Extension,
    all_rows: Sequence[ResultRow],
    standard: ResultRow,
    target: int,
    inspection: Inspection,
) -> Candidate:
    in_force = subject.own.with_line(extension)
    rows = [row for row in all_rows if row.extension == extension]
    measured, failures = (tuple(row for row in rows if bool(row.failed) == failed) for failed in (False, True))
    at_target = _find(measured, Context.name, target)
    of_same = cast(Context, standard.task).standard(subject.facts.trained_len, target, target)
    change = difference_from(standard, at_target, of_same)
    near = difference_from(standard, at_target, "end_loss", "end_loss") if of_same == "loss" else change
    over_window = near if target > subject.facts.trained_len else NO_ESTIMATE
    harm, far = _harm(measured, standard), far_share(measured, target)
    missing = _why_missing(at_target) or _why_failed(failures, target)
    result = (
        Verdict(missing, f"{missing} at {target:,} tokens")
        if missing
        else verdict(change, harm, far, over_window, what=name_of_hidden(measured))
    )
    return Candidate(
        line=line,
        extension=in_force,
        rows=measured,
        failures=failures,
        change=change,
        over_window=over_window,
        cache_bytes=inspection.cache_bytes(in_force),
        slowdown=_slowdown(all_rows, extension, target),
        verdict=result,
        idle=inspection.idle(in_force, lift_windows=subject.own.lifts_windows),
        harm=harm,
    )


def _harm(rows: Sequence[ResultRow], standard: ResultRow) -> Estimate:
    """The rise of the loss in texts of the trained length: by the task, or of all tokens that were read anyway."""
    stated = _numbers(rows, Damage.name, "loss")
    row = _find(rows, Context.name, standard.length)
    return difference_from(standard, row, "whole_loss", "whole_loss") if stated is None else stated


def far_share(rows: Sequence[ResultRow], length: int) -> Estimate | None:
    """The share of passkeys that is found at a length, or of what is hidden farther away than the trained length."""
    keys, row = _numbers(rows, Passkey.name, "right", length), _find(rows, Context.name, length)
    return keys if keys is not None else row.numbers.get("far") if row else None


def name_of_hidden(rows: Sequence[ResultRow]) -> str:
    """What a model had to find in the texts of these results, in words."""
    return PASSKEYS if any(row.task.name == Passkey.name for row in rows) else FAR_FACTS


def _last_alone(base: Candidate, standard: ResultRow, inspection: Inspection) -> Candidate:
    """What every user has already: the unchanged model on the last tokens of a text, as many as it was trained on.

    Its losses are those of the standard, which are of the same final tokens. What is hidden before them it cannot find.
    """
    rows = [
        row._replace(numbers=_standard_numbers(standard, row), samples=standard.samples, seconds=standard.seconds)
        for row in base.rows
        if row.task == standard.task
    ]
    target = inspection.target_len
    of_all = _find(rows, Context.name, target)
    misses = [f"misses {FAR_FACTS}"] if of_all and "far" in of_all.numbers else []
    return replace(
        base,
        line=f"last {standard.length:,} alone",
        rows=tuple(rows),
        failures=(),
        change=difference_from(standard, standard, "loss"),
        over_window=NO_ESTIMATE,
        cache_bytes=replace(inspection, target_len=standard.length).cache_bytes(base.extension),
        slowdown=standard.times(at) if (at := base.at(Context.name, target)) else math.nan,
        verdict=Verdict(UNCHANGED, ", ".join([UNCHANGED, *misses])),
        harm=NO_ESTIMATE,
    )


def _standard_numbers(standard: ResultRow, row: ResultRow) -> dict[str, Estimate]:
    """The numbers of the standard; of what was asked at this length, only what its text has can be found."""
    unread = ("copied", "copied_loss") if row.length != standard.length else ()  # a passage before its text
    numbers = {name: number for name, number in standard.numbers.items() if name not in unread}
    if "found" in row.numbers:
        texts = [(one["answers"], all_of["answers"]) for one, all_of in zip(standard.samples, row.samples, strict=True)]
        right = [[answer["right"] for answer in one] + [False] * (len(asked) - len(one)) for one, asked in texts]
        numbers["found"] = share_of_answers(right, projects_of(row.samples))
    return numbers | ({"far": share(0, row.numbers["far"].of)} if "far" in row.numbers else {})


def _why_missing(at_target: ResultRow | None) -> str:
    """In words, what the losses are where they are no numbers; empty where all are, or none was measured."""
    return why_not_finite(_losses(at_target)) if at_target else ""


def _why_failed(failures: Sequence[ResultRow], target: int) -> str:
    """Why the losses at the longest length were not measured; empty where they were."""
    row = _find(failures, Context.name, target)
    return row.failed if row else ""


def _standard(rows: Sequence[ResultRow], trained_len: int) -> ResultRow:
    """The base model at its trained length."""
    row = _context(rows, Extension(), trained_len)
    if row is None or row.failed:
        rule = f"enough to read {trained_len} tokens, the length that everything is compared with"
        got = row.failed if row else None
        raise DoesNotFit("memory", rule, got, remedy="take a smaller model or a larger machine")
    wrong = why_not_finite(
        [*_losses(row), *(sample["window_loss"] for sample in row.samples if "window_loss" in sample)]
    )
    if wrong:
        rule = f"finite at {trained_len} tokens, the length that everything is compared with"
        remedy = "without an extension the model computes no probabilities: load it with another dtype, or check it"
        raise DoesNotFit("loss of the base model", rule, wrong, remedy=remedy)
    return row


def difference_from(base: ResultRow | None, row: ResultRow | None, name: str, of_row: str = "loss") -> Estimate:
    """A row's losses minus a number of the base model on the same texts; no estimate where one was not measured."""
    others = [sample[name] for sample in base.samples if name in sample] if base else []
    mine = [sample[of_row] for sample in row.samples if of_row in sample] if row else []
    return difference(mine, others, groups=projects_of(row.samples)) if row and mine and others else NO_ESTIMATE


def _losses(row: ResultRow) -> list[float]:
    """One for each passage, in the order of the samples."""
    return [sample["loss"] for sample in row.samples]


def _slowdown(rows: Sequence[ResultRow], extension: Extension, length: int) -> float:
    """Of reading the passages at a length; NaN where they could not be read, or not on one kind of device."""
    row, base = _context(rows, extension, length), _context(rows, Extension(), length)
    return row.times(base) if row and base and not row.failed and not base.failed else math.nan


def _context(rows: Sequence[ResultRow], extension: Extension, length: int) -> ResultRow | None:
    """The results of the task `context`."""
    return _find([row for row in rows if row.extension == extension], Context.name, length)


def _find(rows: Sequence[ResultRow], task: str, length: int) -> ResultRow | None:
    return next((row for row in rows if row.task.title == task and row.length == length), None)


def _numbers(rows: Sequence[ResultRow], task: str, name: str, length: int | None = None) -> Estimate | None:
    """A number of a task at a length, the shortest by default; None where it was not measured."""
    matches = [row for row in rows if row.task.name == task and length in (None, row.length)]
    return min(matches, key=lambda row: row.length).numbers[name] if matches else None
