"""The report of `compare`: `report.html` with its figures, and every number in `results.json`."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ropewalk.evaluation.compare.compare import Candidate, Comparison, reach
from ropewalk.folders import replacing, write_text
from ropewalk.report.drawing import ReportFigure, written
from ropewalk.report.figures import figures
from ropewalk.report.formulas import FORMULAS, formulas
from ropewalk.report.html_page import PagePart, PageTable, render_page
from ropewalk.report.sections import Section, sections
from ropewalk.report.tables import advice, page_notes, table, title

ABOUT_FORMULAS = "What the methods do by their formulas alone, whatever the model has learned."


def write_report(comparison: Comparison, folder: str | Path, *, command: str = "") -> Path:
    """The page, the figures as PNG, SVG and CSV, and everything as JSON."""
    out = Path(folder)
    extensions = {candidate.line: candidate.extension for candidate in comparison.candidates}
    drawn = [*figures(comparison), *formulas(extensions, comparison.facts, comparison.lengths[-1])]
    results = _finite(as_json(comparison, command))
    with replacing(out) as place:
        for figure in drawn:
            written(figure, place)
        write_text(place / "results.json", json.dumps(results, indent=1) + "\n")
        text = render_page(
            title=title(comparison),
            advice=[advice(comparison)],
            table=table(comparison),
            notes=page_notes(comparison),
            parts=_parts(sections(comparison), drawn),
            command=command,
            made={**comparison.made, **comparison.marks},
            folder=place,
        )
        write_text(place / "report.html", text)
    return out / "report.html"


def _parts(tasks: Sequence[Section], drawn: Sequence[ReportFigure]) -> list[PagePart]:
    """A part for each task, and one for the formulas."""

    def figures_of(name: str) -> tuple[ReportFigure, ...]:
        return tuple(figure for figure in drawn if figure.section == name)

    parts = [PagePart(task.name, task.about, figures_of(task.name), PageTable(task.head, task.rows)) for task in tasks]
    return [*parts, PagePart(FORMULAS, ABOUT_FORMULAS, figures_of(FORMULAS))]


def as_json(comparison: Comparison, command: str = "") -> dict[str, Any]:
    """Every number, sample by sample, and everything needed to measure it again."""
    return {
        "command": command,
        "made": comparison.made,
        "seconds": comparison.seconds,
        "marks": comparison.marks,
        "trained_len": comparison.trained_len,
        "own_schedule": comparison.own_schedule,
        "lengths": list(comparison.lengths),
        "tasks": [{**task.to_json(), "version": task.version} for task in comparison.tasks],
        "contenders": [_candidate(comparison, candidate) for candidate in comparison.candidates],
    }


def _candidate(comparison: Comparison, candidate: Candidate) -> dict[str, Any]:
    scored = sorted({task.name for task in comparison.tasks if task.scored})
    return {
        "line": candidate.line,
        "extension": candidate.extension.to_json(),
        "change": candidate.change._asdict(),
        "cache_bytes": candidate.cache_bytes,
        "slowdown": candidate.slowdown,
        "verdict": candidate.verdict._asdict(),
        "reach": {name: reach(comparison, candidate, name)._asdict() for name in scored},
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


def _finite(value: Any) -> Any:
    """JSON has no infinity: the open end of an interval, or a number that was not measured, is null."""
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
