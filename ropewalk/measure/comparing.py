"""`rw.compare`: extensions of one model side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from ropewalk.errors import InvalidValue
from ropewalk.evaluation.compare.cells import cells
from ropewalk.evaluation.compare.cluster.crew import on_cluster
from ropewalk.evaluation.compare.compare import Candidate, Comparison, tasks_of
from ropewalk.evaluation.compare.compare import compare as measured
from ropewalk.evaluation.compare.runner import Measuring, ResultRow
from ropewalk.evaluation.compare.store import Store
from ropewalk.evaluation.compare.workers import side_by_side
from ropewalk.evaluation.material.subject import Subject
from ropewalk.evaluation.tasks.signature import Task
from ropewalk.evaluation.tasks.task_line import checked, tasks_named
from ropewalk.hf.probe.facts import trained_len
from ropewalk.measure.argument_checks import tasks_text, tokens, whole_number
from ropewalk.measure.lines import Extensions, lines_of
from ropewalk.measure.loading import OpenedModel, kept, opened_as
from ropewalk.measure.progress import Shown, showing_progress
from ropewalk.measure.result import MeasuredResult
from ropewalk.models import NAME
from ropewalk.notation import BARE
from ropewalk.parsing import Line
from ropewalk.plain_json import finite, record_json
from ropewalk.report.comparison import as_json, write_report
from ropewalk.report.drawing import name_of
from ropewalk.report.html_page import PageTable
from ropewalk.report.tables import advice, interval, ranked, remarks, short, table, title
from ropewalk.spec import Json

TIMES = (2, 4, 8)  # lengths by default, in trained lengths
FEWEST, SAMPLES = 2, 8  # texts of an interval, and of each length where the caller says nothing


@dataclass(frozen=True, repr=False)
class ComparisonResult(MeasuredResult):
    """The result of `rw.compare`; `comparison` has its candidates, the base model first."""

    comparison: Comparison

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
        """What was not measured to the end, and why: nothing, in a comparison without rounds."""
        return []

    @property
    def best(self) -> str:
        """The line with the lowest loss at the longest length; `bare` is the model without an extension."""
        return self.comparison.best.line

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A record for each extension, task, length and metric, with its 95 % interval."""
        return [record for one in self.comparison.candidates for row in one.rows for record in _records(one, row)]

    def to_dict(self) -> Json:
        """Everything, sample by sample, as `results.json`."""
        return record_json(as_json(self.comparison))

    def write(self, folder: str | Path, *, command: str = "") -> Path:
        """Write `report.html` with its figures, and `results.json`; return the path of the page."""
        return write_report(self.comparison, folder, command=command)


def compare(
    model: Any = NAME,
    extensions: Extensions = (),
    *,
    tokenizer: Any = None,
    lengths: int | str | Sequence[int | str] = (),
    corpus: str = "stdlib",
    samples: int = SAMPLES,
    tasks: str = "",
    folder: str | Path | None = None,
    device: str = "",
    dtype: str = "",
    revision: str = "",
    trust_remote_code: bool = False,
    workers: int = 1,
    ray: str = "",
    progress: Shown = True,
) -> ComparisonResult:
    """Measure extensions of a model side by side on held-out text, and say which to use.

        compared = rw.compare("model", ["yarn", "rerope+log_n"], lengths=[512, 1024], tasks="context")
        print(compared)

    `model` is a loaded model, a folder, a name on the hub, or default: the model that comes with Ropewalk. A loaded
    model is left as it was; its tokenizer is the one beside its weights unless `tokenizer` is passed. A named model
    is loaded by `device`, `dtype`, `revision` and `trust_remote_code`, as by the options of the command line.
    `extensions` are lines or `Extension`s, or a mapping from names to them; by default nine lines. `lengths` are
    tokens (1024 or "1k"), by default 2, 4 and 8 times the trained length, which is always measured. `tasks` is a
    list in one text, such as "passkey,needle:depths=5"; "./my_task.py" is a file with a task of yours. In a
    `folder` the numbers are kept: the same call continues there and measures nothing twice. `workers` are processes
    (0: as many as suit the model), `ray` is the address of a cluster. `progress=False` shows no bar; "lines" prints
    lines into a log. In a notebook the result shows itself as a table.
    """
    lines, all_tasks = lines_of(extensions), _tasks(tasks, samples)
    asked = list(tokens("lengths", lengths))
    measuring = on_cluster(ray) if ray else side_by_side(whole_number("workers", workers, least=0))
    how: dict[str, Any] = {"dtype": dtype, "device": device, "revision": revision}
    how |= {"trust_remote_code": trust_remote_code, "kept_on": "cpu" if ray else ""}
    with (
        kept(folder) as place,
        opened_as(model, tokenizer, **how) as host,
    ):
        subject, all_lengths = _subject(host, corpus, asked)
        return ComparisonResult(_measured(subject, lines, all_lengths, all_tasks, place, measuring, progress))


def _tasks(tasks: str, samples: int) -> Sequence[Task]:
    samples = whole_number("samples", samples, least=FEWEST)
    return tasks_named(tasks, samples) if tasks_text(tasks) else tasks_of(samples)


def _subject(host: OpenedModel, corpus: str, lengths: list[int]) -> tuple[Subject, list[int]]:
    """What is measured, and at which lengths: the trained length is always one of them."""
    known = trained_len(host.model.config.get_text_config())
    lengths = sorted({known, *(lengths or [times * known for times in TIMES])})
    if lengths[0] < known:
        raise InvalidValue("lengths", f"at least the trained length ({known})", lengths[0])
    return host.subject(corpus, lengths[-1]), lengths


def _measured(
    subject: Subject,
    lines: list[Line],
    lengths: list[int],
    tasks: Sequence[Task],
    place: Path,
    measuring: Measuring,
    shown: Shown,
) -> Comparison:
    names = range(len({BARE, *(line.text for line in lines)}))
    total, done = len(list(cells(names, checked(tasks, FEWEST), lengths, lengths[0]))), count(1)  # type: ignore[arg-type]
    with showing_progress("measuring", shown=shown) as progress:
        return measured(
            subject,
            lines,
            lengths,
            Store(place / "cells.sqlite"),
            tasks=tasks,
            measuring=measuring,
            progress=lambda _: progress(next(done), total),
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
