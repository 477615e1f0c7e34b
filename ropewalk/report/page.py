"""`report.html`: one page with everything in it, readable on a phone and in grey; and the numbers beside it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from ropewalk.evaluation.compare.compare import Comparison, reach
from ropewalk.folders import replacing, write_text
from ropewalk.report.drawing import ReportFigure, written
from ropewalk.report.figures import figures
from ropewalk.report.formulas import FORMULAS, formulas
from ropewalk.report.sections import Section, sections
from ropewalk.report.sheet import PagePart, PageTable, sheet
from ropewalk.report.tables import advice, notes, table, title

ABOUT_FORMULAS = "What the methods do by themselves, whatever the model has learned."


def write_report(comparison: Comparison, folder: str | Path, *, command: str = "") -> Path:
    """The page, the figures as PNG, SVG and CSV, and everything as JSON."""
    out = Path(folder)
    extensions = {each.line: each.extension for each in comparison.contenders}
    drawn = [*figures(comparison), *formulas(extensions, comparison.facts, comparison.lengths[-1])]
    results = _plain(as_json(comparison, command))
    with replacing(out) as place:
        for each in drawn:
            written(each, place)
        write_text(place / "results.json", json.dumps(results, indent=1) + "\n")
        text = sheet(
            title=title(comparison),
            advice=[advice(comparison)],
            table=table(comparison),
            notes=notes(comparison),
            parts=_parts(sections(comparison), drawn),
            command=command,
            made={**comparison.made, **comparison.marks},
            folder=place,
        )
        write_text(place / "report.html", text)
    return out / "report.html"


def _parts(found: list[Section], drawn: list[ReportFigure]) -> list[PagePart]:
    """A part for each task, and one for the formulas."""
    by_name = {name: tuple(each for each in drawn if each.section == name) for name in (each.section for each in drawn)}
    tasks = [
        PagePart(each.name, each.about, by_name.get(each.name, ()), PageTable(each.head, each.rows)) for each in found
    ]
    return [*tasks, PagePart(FORMULAS, ABOUT_FORMULAS, by_name[FORMULAS])]


def as_json(comparison: Comparison, command: str = "") -> dict[str, Any]:
    """Every number, sample by sample, and everything needed to measure it again."""
    scored = sorted({task.name for task in comparison.tasks if task.scored})
    return {
        "command": command,
        "made": comparison.made,
        "seconds": comparison.seconds,
        "marks": comparison.marks,
        "trained_len": comparison.trained_len,
        "own_schedule": comparison.own_schedule,
        "lengths": list(comparison.lengths),
        "tasks": [{**task.to_json(), "version": task.version} for task in comparison.tasks],
        "contenders": [
            {
                "line": each.line,
                "extension": each.extension.to_json(),
                "change": each.change._asdict(),
                "cache_bytes": each.cache_bytes,
                "slowdown": each.slowdown,
                "verdict": each.verdict._asdict(),
                "reach": {name: reach(comparison, each, name)._asdict() for name in scored},
                "rows": [
                    {
                        "task": row.task.title,
                        "length": row.length,
                        "seconds": row.seconds,
                        "numbers": {name: estimate._asdict() for name, estimate in row.numbers.items()},
                        "samples": list(row.samples),
                    }
                    for row in each.rows
                ],
                "failures": [
                    {"task": row.task.title, "length": row.length, "why": row.failed} for row in each.failures
                ],
            }
            for each in comparison.contenders
        ],
    }


def _plain(value: Any) -> Any:
    """JSON knows no infinity: an interval without an end, or a number that was not measured, is null."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
