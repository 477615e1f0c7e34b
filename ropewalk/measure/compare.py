"""`rw.compare`: extensions of one model side by side."""

from __future__ import annotations

import math
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from rich.console import RenderableType

from ropewalk.errors import name_errors
from ropewalk.extension.extension import Extension
from ropewalk.extension.notation import BARE, minutes, tokens
from ropewalk.extension.parsing import Line
from ropewalk.files import finite, record_json
from ropewalk.hf.load_options import UNSTATED, LoadOptions
from ropewalk.hf.loading import free_bytes
from ropewalk.hf.probe.facts import parse_for_config, trained_len
from ropewalk.hf.use.inspect import Inspection, sizes
from ropewalk.measure.arguments import FEWEST_TEXTS, RunOptions, seconds_or_none, tasks_text, whole_number
from ropewalk.measure.comparison.cluster.crew import measure_on_cluster
from ropewalk.measure.comparison.comparison import Candidate, Comparison, lines_by_name, measure_candidates, tasks_of
from ropewalk.measure.comparison.plan import (
    ComparisonPlan,
    Cost,
    calibrated_in_fastest,
    calibration_text,
    is_free,
    plan_comparison,
    require_trained_length,
    size_in_words,
)
from ropewalk.measure.comparison.race import TimeIsUp
from ropewalk.measure.comparison.runner import Cell, Measuring, ResultRow, in_words
from ropewalk.measure.comparison.store import Store
from ropewalk.measure.comparison.workers import side_by_side, workers_for
from ropewalk.measure.lines import Extensions, lines_of
from ropewalk.measure.material.subject import Subject
from ropewalk.measure.metrics.intervals import FEW_PROJECTS
from ropewalk.measure.opened_model import OpenedModel, open_folder, open_model
from ropewalk.measure.progress import WorkProgress, showing_progress
from ropewalk.measure.report.advice import advice
from ropewalk.measure.report.comparison import as_json, finding, write_report
from ropewalk.measure.report.drawing import name_of
from ropewalk.measure.report.submitted import write_rows
from ropewalk.measure.report.tables import interval, notes, ranked, remarks, short, table, terminal, title
from ropewalk.measure.report.titles import counted_lines, texts
from ropewalk.measure.report.written_tables import PageTable
from ropewalk.measure.result import TERMINAL_WIDTH, MeasuredResult, aligned
from ropewalk.measure.tasks.task import Task
from ropewalk.measure.tasks.task_line import tasks_named
from ropewalk.methods.spec import Json
from ropewalk.models import NAME
from ropewalk.texts.corpora import require_source

FEW_SAMPLES = 8  # texts of each length where the caller says nothing
CORPUS = "stdlib"
NO_LIMIT = 'time_limit="none", or --time none,'
FIRST_TABLE_SOON = 60.0  # seconds: where it takes longer, each figure is said as soon as it is known
ON_CPU = 30 * 60.0  # seconds: the limit where the caller says nothing


@dataclass(frozen=True, repr=False)
class ComparisonResult(MeasuredResult):
    """The result of `rw.compare`; `comparison` has its candidates, the base model first."""

    comparison: Comparison
    unfinished: tuple[str, ...] = field(default=(), kw_only=True)  # what was not measured, and why
    interrupted: bool = field(default=False, kw_only=True)

    @property
    def title(self) -> str:
        """At which lengths."""
        return title(self.comparison)

    @property
    def sentences(self) -> list[str]:
        """Which extension to use, and what is special about this model or this run."""
        return [advice(self.comparison), *remarks(self.comparison)]

    @property
    def table(self) -> PageTable:
        """A row for each extension, the lowest loss first."""
        return table(self.comparison)

    @property
    def brief(self) -> PageTable:
        """The loss at the longest length, and the verdict."""
        longest = self.comparison.lengths[-1]
        base = "base in a window" if self.comparison.by_window else "base"
        head = ("extension", f"loss at {short(longest)}", f"minus {base} [95% CI]", "verdict")
        rows = (
            (name_of(one.line), _loss(one, longest), interval(one.change), one.verdict.words)
            for one in ranked(self.comparison)
        )
        return PageTable(head, tuple(rows), ends_in_words=True)

    @property
    def stopped(self) -> list[tuple[str, str]]:
        """What was not measured to the end, and why."""
        return [("not measured", why) for why in self.unfinished]

    @property
    def best(self) -> str:
        """The line with the lowest loss at the longest length; `bare` is the model without an extension."""
        return self.comparison.best.line

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A record for each extension (`bare`: none; `last 512 alone`), task, length and metric, with its interval."""
        every = (*self.comparison.candidates, self.comparison.last_alone)
        return [record for one in every if one for row in one.rows for record in _records(one, row)]

    def for_terminal(self) -> Iterator[RenderableType]:
        """All losses in one table, the verdicts in a second; notes, what was not measured, the advice."""
        comparison = self.comparison
        for drawn in terminal(comparison):
            yield drawn
            yield ""
        for note in notes(comparison):
            yield textwrap.fill(note, TERMINAL_WIDTH)
        for line, why in self.stopped:
            yield textwrap.fill(f"{line}: {why}", TERMINAL_WIDTH, subsequent_indent="  ")
        yield ""
        yield textwrap.fill(f"{finding(comparison)}. {advice(comparison)}", TERMINAL_WIDTH)

    def to_dict(self) -> Json:
        """Everything, sample by sample, as `results.json`."""
        return record_json(as_json(self.comparison))

    def write(self, folder: str | Path, *, command: str = "", pictures: str = "") -> Path:
        """Write `report.html` with its figures, and `results.json`; return the path of the page."""
        return write_report(self.comparison, folder, command=command, pictures=pictures)

    def submit(self, folder: str | Path, *, force: bool = False) -> list[Path]:
        """Write a row of the leaderboard for each extension, which `ropewalk compare --redo` measures again."""
        return write_rows(self.comparison, folder, force=force)


def compare(
    model: Any = NAME,
    extensions: Extensions = (),
    *,
    lengths: int | str | Sequence[int | str] = (),
    tasks: str = "",
    corpus: str = "",
    samples: int | None = None,
    time_limit: float | str = "",
    folder: str | Path | None = None,
    options: LoadOptions = UNSTATED,
) -> ComparisonResult:
    """Measure extensions of a model side by side on held-out text, and say which to use.

        compared = rw.compare("model", ["yarn", "rerope+log_n"], lengths=[512, 1024], tasks="context")
        print(compared)

    A loaded model is left as it was. Every extension is measured on one text first, then on more, in rounds. The result
    is that of the last completed round; the first round is always completed. In a notebook the result shows
    itself as a table.

    Args:
        model: a loaded model, a folder, a name on the hub, or default: the model that comes with Ropewalk.
        extensions: notation such as "yarn+log_n", or `Extension`s, or a mapping from names to them; by default yarn,
            dynamic_yarn, self_extend+log_n, rerope+log_n and streaming.
        lengths: in tokens (1024 or "1k"); by default 1, 2 and 4 times the trained length, as far as time, memory and
            texts allow. The trained length is always measured.
        tasks: a comma-separated string, such as "passkey,needle:depths=5"; "./my_task.py" is a file with your own task.
        corpus: held-out text; by default "stdlib" (the part held out from Ropewalk's own training), or "all:stdlib" if
            that part has too few texts that long, or from too few projects.
        samples: texts of each length, by default 8.
        time_limit: in seconds, as "30m", or "none"; by default 30 minutes on a CPU without `samples` and without Ray.
        folder: where results are stored; repeating the call resumes from them and measures nothing twice.
        options: a `LoadOptions` says how a named model is loaded; a `RunOptions` also says what runs the measurement.
    """
    began, run = time.monotonic(), RunOptions.of(options)
    lines, all_tasks = lines_of(extensions), tasks_asked(tasks, FEW_SAMPLES if samples is None else samples, tasks_of)
    asked, limit = list(tokens("lengths", lengths)), seconds_or_none("time_limit", time_limit)
    run.check(model)
    if corpus:
        require_source(corpus)
    measuring = measuring_by(run)
    with (
        open_folder(folder) as place,
        showing_progress("loading the model", shown=run.progress) as shown,
        open_model(model, run) as host,
    ):
        shown(0, 0, "planning: looking for texts")
        if limit is None and samples is None and host.model.device.type == "cpu" and not run.ray:
            limit = ON_CPU
        job = ComparisonJob(
            host=host,
            corpus=corpus or _corpus(host, asked),
            lines=lines,
            chosen=bool(extensions),
            tasks=all_tasks,
            store=Store(place / "cells.sqlite"),
            measuring=measuring,
            workers=run.workers,
            after_round=run.after_round or (lambda result: None),
            deadline=None if limit in (None, math.inf) else began + limit,
            free_precision=is_free(model, host.model, run),
            shown=shown,
        )
        return job.run(asked)


def measuring_by(options: RunOptions) -> Measuring:
    """Who measures: a cluster, or processes of this machine."""
    return measure_on_cluster(options.ray) if options.ray else side_by_side(options.workers)


def _corpus(host: OpenedModel, asked: list[int]) -> str:
    """Held-out texts of Python's own library; all of it, where these are too few or of too few projects."""
    subject = host.subject(CORPUS, max(asked, default=2 * trained_len(host.model)))
    enough = subject.count(FEW_SAMPLES) == FEW_SAMPLES and len({*subject.projects(FEW_SAMPLES)}) >= FEW_PROJECTS
    return CORPUS if enough else f"all:{CORPUS}"


def tasks_asked(tasks: str, samples: int, usual: Callable[[int], Sequence[Task]]) -> Sequence[Task]:
    """The tasks that a caller names, or the usual ones."""
    samples = whole_number("samples", samples, least=FEWEST_TEXTS)
    return tasks_named(tasks, samples) if tasks_text(tasks) else usual(samples)


@dataclass(frozen=True, kw_only=True)
class ComparisonJob:
    """A comparison that plans itself, and goes round after round."""

    host: OpenedModel
    corpus: str
    lines: list[Line]
    chosen: bool  # whether the caller named the lines
    tasks: Sequence[Task]
    store: Store
    measuring: Measuring
    workers: int
    after_round: Callable[[ComparisonResult], None]
    deadline: float | None  # by time.monotonic()
    free_precision: bool  # whether a faster one may be chosen
    shown: WorkProgress

    def run(self, asked: list[int]) -> ComparisonResult:
        """The result of the last round that was completed; the first one always is."""
        plan = self.plan(asked)
        subject, lines = self.host.subject(self.corpus, plan.lengths[-1]), self.lines[: plan.lines]
        config, named = self.host.model.config.get_text_config(), lines_by_name(lines)
        # A line that does not fit is refused before anything is announced. One that changes nothing is the base model.
        names = {parse_for_config(config, one, plan.lengths[-1], subject.facts): name for name, one in named.items()}
        names[Extension()] = BARE
        for task in self.tasks:
            with name_errors(task.title):
                task.require(subject, task.at(plan.lengths, plan.lengths[0]))
        for words in self._sentences(plan):
            self.shown.note(words)
        left, result, before, here = self._left_out(plan), None, list[str](), set[tuple[Any, ...]]()
        for number, one in enumerate(plan.rounds, 1):
            try:
                compared = self._compared(subject, lines, plan, number, names, here)
            except (TimeIsUp, KeyboardInterrupt) as ended:
                if result is None:
                    self.shown.note("there is no table yet; the same command goes on from what is read")
                    raise
                stopped = isinstance(ended, KeyboardInterrupt)
                why = "it was stopped" if stopped else f"time ran out ({NO_LIMIT} removes the limit)"
                unread = f"{plan.unread(plan.rounds[number - 2])}: {why}"
                return replace(result, unfinished=(unread, *left), interrupted=stopped)
            result = ComparisonResult(compared, unfinished=left)
            self.after_round(result)
            if number < len(plan.rounds):  # the last table is the answer
                rows = aligned(result.brief, most=len(result.brief.rows))
                if rows != before:
                    self.shown.table("\n".join([f"ropewalk: after {texts(one.texts)}", *rows]))
                before = rows
        return cast(ComparisonResult, result)

    def plan(self, asked: list[int]) -> ComparisonPlan:
        """What is done."""
        model, known = self.host.model, trained_len(self.host.model)
        require_trained_length(asked, known)
        inspection = sizes(model)
        self.shown(0, 0, "planning: timing the model")
        cost = self._calibrated(inspection)
        seconds_left = None if self.deadline is None else max(1.0, self.deadline - time.monotonic())
        return plan_comparison(
            cost,
            inspection,
            sorted({known, *asked}) if asked else (),
            lines=len({line.text for line in self.lines}),
            chosen=self.chosen,
            samples=max(task.samples for task in self.tasks),
            limit=seconds_left,
            free=free_bytes() if model.device.type == "cpu" else 2**62,
            texts_of=self._texts_of,
        )

    def _calibrated(self, inspection: Inspection) -> Cost:
        """The cost of this model here; in the faster precision, where the caller left it to Ropewalk."""
        model, known = self.host.model, inspection.facts.trained_len
        ids = calibration_text(self.host.tokenizer, known)
        count = self.workers or workers_for(self.host.subject(self.corpus, known))
        return calibrated_in_fastest(model, inspection, ids, free=self.free_precision, workers=count)

    def _texts_of(self, length: int) -> int:
        return self.host.subject(self.corpus, length).count(max(task.samples for task in self.tasks))

    def _sentences(self, plan: ComparisonPlan) -> Iterator[str]:
        """The plan in words."""
        lengths, last = ", ".join(short(length) for length in plan.lengths), plan.last
        yield f"{size_in_words(self.host.model)}, {self.corpus} texts"
        yield f"plan: the base model and {counted_lines(plan.lines)} at {lengths}, up to {texts(plan.rounds[-1].texts)}"
        first = plan.seconds(plan.rounds[0])
        more = f", {texts(last.texts)} in {minutes(plan.seconds(last))}" if last is not plan.rounds[0] else ""
        ends = f" to the first table, of {texts(plan.rounds[0].texts)}{more}" if len(plan.rounds) > 1 else ""
        yield f"about {minutes(first)}{ends}; about {plan.memory / 2**30:.1f} GiB beside the weights"
        if plan.limit is not None and first > plan.limit:
            sooner = "fewer extensions or a shorter length make it sooner"
            yield f"the time limit leaves {minutes(plan.limit)}; the first table is finished all the same: {sooner}"
        if plan.rounds[-1].texts < (wanted := max(task.samples for task in self.tasks)):
            yield f"{self.corpus} has no {wanted} held-out texts of {short(plan.lengths[-1])}, so fewer are read"
        yield from (f"left out: {words}" for words in self._left_out(plan))

    def _left_out(self, plan: ComparisonPlan) -> tuple[str, ...]:
        """What is not measured, with what measures it."""
        every = ",".join(short(length) for length in (*plan.lengths, *plan.left_out))
        lengths = [
            f"{short(length)} tokens, about {minutes(plan.cost.cell(length))} a text and line:"
            f" --lengths {every} --time none"
            for length in plan.left_out
        ]
        lines = [line.text for line in self.lines[plan.lines :]]
        return (*lengths, *([f"{', '.join(lines)}: name them, or give more --time"] if lines else []))

    def _compared(
        self,
        subject: Subject,
        lines: list[Line],
        plan: ComparisonPlan,
        number: int,
        names: Mapping[Extension, str],
        here: set[tuple[Any, ...]],
    ) -> Comparison:
        """One round. `here` is what this run has measured."""
        one = plan.rounds[number - 1]
        tasks = [replace(task, samples=min(task.samples, one.texts)) for task in self.tasks]
        total, done, stored = plan.seconds(plan.last), 0.0, 0.0
        label = f"round {number} of {len(plan.rounds)}, {texts(one.texts)}" if len(plan.rounds) > 1 else "measuring"
        self.shown(0.0, total, label)

        def progress(cell: Cell, result: Json) -> None:
            nonlocal done, stored
            done += plan.cost.cell(cell.length)
            which = (cell.extension, cell.task.title, cell.length, cell.sample)
            if result:
                here.add(which)
            elif which not in here:
                stored += plan.cost.cell(cell.length)
            if result and stored:
                self.shown.note(f"{minutes(stored)} of this was measured by an earlier run, and is not measured again")
                stored = 0.0
            self.shown(min(done, total), total, label)
            if number == 1 and result and plan.seconds(one) > FIRST_TABLE_SOON:
                self.shown.note(f"{name_of(names[cell.extension])} {in_words(cell, result)}")
            if number > 1 and self.deadline is not None and time.monotonic() > self.deadline:
                raise TimeIsUp

        return measure_candidates(
            subject,
            lines,
            plan.lengths[: one.shortest],
            self.store,
            tasks=tasks,
            measuring=self.measuring,
            progress=progress,
            only_longest=one.only_longest,
            fitted_to=plan.lengths[-1],
        )


def _loss(candidate: Candidate, at: int) -> str:
    row = candidate.at("context", at)
    return f"{row.numbers['loss'].value:.2f}" if row else candidate.failed("context", at)


def _records(candidate: Candidate, row: ResultRow) -> Iterator[dict[str, Any]]:
    for metric, (value, low, high, of) in row.numbers.items():
        yield {
            "extension": candidate.line,
            "task": row.task.title,
            "length": row.length,
            "metric": metric,
            "value": finite(value),
            "low": finite(low),
            "high": finite(high),
            "samples": of,
        }
