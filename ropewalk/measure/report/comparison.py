"""The report of `compare`: `report.html`, its figures as CSV and as pictures, and every number in `results.json`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ropewalk.files import finite_json
from ropewalk.measure.comparison.changes import change_at, change_by_cache, changes_by_position
from ropewalk.measure.comparison.comparison import Candidate, Comparison, reach, tasks_of
from ropewalk.measure.report.advice import advice
from ropewalk.measure.report.drawing.names import name_of
from ropewalk.measure.report.figures import headline, keys_of
from ropewalk.measure.report.html_page import PagePart, ReportPage, write_page
from ropewalk.measure.report.predictions import predictions
from ropewalk.measure.report.score_maps import biases_json
from ropewalk.measure.report.sections import parts
from ropewalk.measure.report.tables import caches, page_notes, short, table, title
from ropewalk.measure.report.titles import corpus_of, counted, date_of, model_of, of_projects
from ropewalk.measure.tasks import Context, Task
from ropewalk.measure.tasks.outside import source_mark
from ropewalk.models import NAME

ABOUT_TABLE = "One row for each extension, the lowest loss at the longest length first; a click on a heading sorts."
DATA = "results.json"
SMALL = "Ropewalk's small model"  # what a title calls the one that comes with it
MOST_IN_HEAD = 12  # extensions that the head of the page names


def write_report(
    comparison: Comparison,
    folder: str | Path,
    *,
    command: str = "",
    before: Sequence[PagePart] = (),
    files: Mapping[str, str] = MappingProxyType({}),
    more: Mapping[str, Any] = MappingProxyType({}),
    pictures: str = "",
) -> Path:
    """The page, its figures as CSV and as `pictures`, and everything as JSON.

    With other parts `before` its own, other `files` beside it, and `more` in the JSON.
    """
    page = page_of(comparison, command)
    page = replace(page, parts=[*before, *page.parts])
    results = finite_json({**as_json(comparison, command), **more})
    return write_page(
        page, Path(folder) / "report.html", {**files, DATA: json.dumps(results, indent=1) + "\n"}, pictures
    )


def page_of(comparison: Comparison, command: str = "") -> ReportPage:
    """What the page says."""
    return ReportPage(
        kind="ropewalk compare",
        title=heading(comparison),
        finding=finding(comparison),
        date=date_of(comparison.made),
        facts=_facts(comparison),
        advice=[advice(comparison)],
        headline=headline(comparison),
        table=table(comparison),
        table_about=ABOUT_TABLE,
        notes=page_notes(comparison),
        parts=parts(comparison),
        command=command,
        made={**comparison.made, **comparison.marks},
        data=DATA,
        keys={name_of(line): key for line, key in keys_of(comparison).items()},
    )


def heading(comparison: Comparison) -> str:
    """The model, the longest length and the extensions, as a title that can be shared."""
    names = [candidate.line for candidate in comparison.candidates[1:]]
    model = SMALL if comparison.made.get("model") == NAME else model_of(comparison.made)
    return f"{model} at {short(comparison.lengths[-1])}: {counted(names, 'extension') or 'no extension'}"


def finding(comparison: Comparison) -> str:
    """What was found, with its figures: the best extension beside the base model at the longest length."""
    longest, base = comparison.lengths[-1], comparison.base
    best = min(comparison.candidates[1:], key=lambda candidate: candidate.rank, default=None)
    rows = {one.line: one.at(Context.name, longest) for one in (best, base) if one is not None}
    losses = [f"{name_of(line)} {row.numbers['loss'].value:.2f}" for line, row in rows.items() if row]
    said = f"{', '.join(losses)} nats per token" if losses else "no loss is known"
    return f"Trained on {comparison.trained_len:,} tokens, reading {longest:,}: {said}"


def _facts(comparison: Comparison) -> list[tuple[str, str]]:
    extensions = [name_of(candidate.line) for candidate in comparison.candidates[1:]]
    return [
        ("model", model_of(comparison.made)),
        (
            "extensions",
            ", ".join(extensions)
            if len(extensions) <= MOST_IN_HEAD
            else str(len(extensions))
            if extensions
            else "none",
        ),
        ("corpus", corpus_of(comparison.marks)),
        ("texts", f"{_texts(comparison)}{of_projects(comparison.projects, ', from')}"),
        ("lengths", title(comparison)),
    ]


def _texts(comparison: Comparison) -> int:
    """The texts of the loss, which decide."""
    return max((task.samples for task in comparison.tasks if task.name == Context.name), default=0)


def command_of(comparison: Comparison) -> str:
    """What measures the same in a terminal; of folders and files it has the names alone."""
    samples = max(task.samples for task in comparison.tasks)
    lines = [candidate.line for candidate in comparison.candidates[1:]]
    lengths = ",".join(map(str, comparison.lengths))
    words = ["ropewalk", "compare", str(comparison.made["model"]), *lines, "--lengths", lengths]
    if comparison.tasks != tasks_of(samples):
        words += ["--tasks", ",".join(on_a_line(task, samples) for task in comparison.tasks)]
    return shlex.join([*words, "--corpus", corpus_of(comparison.marks), "--samples", str(samples)])


def on_a_line(task: Task, samples: int) -> str:
    """A task as `--tasks` takes it beside `--samples`, with what is not usual of it."""
    usual = {one.name: finite_json(one.default) for one in fields(task)} | {"name": task.name, "samples": samples}
    stated = [
        f"{name}={_written(value)}" for name, value in task.to_json().items() if value != usual.get(name, MISSING)
    ]
    return task.name + (f":{','.join(stated)}" if stated else "")


def _written(value: Any) -> str:
    if value is None:
        return "nothing"
    return f"[{','.join(map(_written, value))}]" if isinstance(value, list) else str(value).lower()


def as_json(comparison: Comparison, command: str = "") -> dict[str, Any]:
    """Every number, sample by sample, and everything needed to measure it again."""
    return {
        "command": command or command_of(comparison),
        "made": comparison.made,
        "seconds": comparison.seconds,
        "marks": comparison.marks,
        "trained_len": comparison.trained_len,
        "standard": "window" if comparison.by_window else "trained length",
        "own_schedule": comparison.own_schedule,
        "lengths": list(comparison.lengths),
        "projects": list(comparison.projects),
        "tasks": [_task(task) for task in comparison.tasks],
        "candidates": [_candidate(comparison, candidate) for candidate in comparison.candidates],
        "last_alone": _last_alone(comparison.last_alone) if comparison.last_alone else None,
        "predictions": [one.to_json() for one in predictions(comparison)],
    }


def _last_alone(candidate: Candidate) -> dict[str, Any]:
    """What is known of it without measuring: sample by sample it is the base model at its trained length."""
    return {
        "line": candidate.line,
        "change": candidate.change._asdict(),
        "cache_bytes": candidate.cache_bytes,
        "slowdown": candidate.slowdown,
        "verdict": candidate.verdict._asdict(),
        "numbers": {
            str(row.length): {name: estimate._asdict() for name, estimate in row.numbers.items()}
            for row in candidate.rows
        },
    }


def _task(task: Task) -> dict[str, Any]:
    """With the hash of its file, where it is not one of the package's."""
    source = source_mark(task)
    return {**task.to_json(), "version": task.version, **({"source": source} if source else {})}


def _candidate(comparison: Comparison, candidate: Candidate) -> dict[str, Any]:
    scored = sorted({task.name for task in comparison.tasks if task.scored})
    return {
        "line": candidate.line,
        "extension": candidate.extension.to_json(),
        "idle": list(candidate.idle),
        "change": candidate.change._asdict(),
        "over_window": candidate.over_window._asdict(),
        "change_by_length": {
            str(length): change_at(comparison, candidate, length)._asdict() for length in comparison.lengths
        },
        "change_by_cache": {
            task.kind: change_by_cache(candidate, task, comparison.lengths[-1])._asdict() for task in caches(comparison)
        },
        "change_by_position": [
            {"position": row.position, "loss": row.loss, **row.change._asdict()}
            for row in changes_by_position(comparison, candidate)
        ],
        "cache_bytes": candidate.cache_bytes,
        "slowdown": candidate.slowdown,
        "verdict": candidate.verdict._asdict(),
        "reach": {name: reach(comparison, candidate, name)._asdict() for name in scored},
        "position_bias": biases_json(candidate),
        "rows": [
            {
                "task": row.task.title,
                "length": row.length,
                "seconds": row.seconds,
                "numbers": {name: estimate._asdict() for name, estimate in row.numbers.items()},
                "samples": list(row.samples),
            }
            for row in candidate.rows
        ],
        "failures": [{"task": row.task.title, "length": row.length, "why": row.failed} for row in candidate.failures],
    }
