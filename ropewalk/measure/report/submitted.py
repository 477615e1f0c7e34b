"""Rows of the open leaderboard: one file for each extension that somebody measured, and the page written from them.

A row has its settings, so that a command measures it again; its results, with those of the unchanged model in the same
run; what measured it; and hashes of its methods. Beside it lie the results of every text, compressed.
"""

from __future__ import annotations

import gzip
import json
import math
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ropewalk.errors import Conflict, InvalidValue, Unreadable
from ropewalk.extension.notation import BARE
from ropewalk.extension.outside import files_in, formula_mark, offered, require_portable, write_files
from ropewalk.extension.outside_code import mark_of
from ropewalk.extension.slots import SLOTS
from ropewalk.files import finite_json, holds, read_bytes, read_json, read_record
from ropewalk.folders import whole_file, write_whole
from ropewalk.measure.comparison.changes import area
from ropewalk.measure.comparison.comparison import Candidate, Comparison, far_share
from ropewalk.measure.report.drawing.names import name_of
from ropewalk.measure.report.leaderboard import DATA, PAGE, interval, markdown, percent
from ropewalk.measure.report.tables import size
from ropewalk.measure.report.titles import model_of, of_projects, texts
from ropewalk.measure.report.written_tables import code, markdown_table, prose
from ropewalk.measure.tasks import Context
from ropewalk.measure.tasks.outside import source_mark
from ropewalk.measure.tasks.task_line import NAMES
from ropewalk.methods.spec import Json
from ropewalk.models import NAME

ROW_FORMAT = "ropewalk row 1"
PARTS = ("settings", "results", "base", "made", "method")
SETTINGS = ("model", "marks", "texts", "trained_len", "lengths", "tasks", "extension")
RECORDS = ".samples.json.gz"
MOST_LETTERS = 80  # of the name of a row's file
SMALL_MODEL = 100_000_000  # parameters: those that Ropewalk trains for its studies have fewer
RECORD_DIGITS = 6  # significant ones, of the results of a text
TIERS = ("Real models", "Small models, trained for studies", "The model that Ropewalk carries")
OLD = "measured with another version"
HEAD = ("extension", "loss", "found", "short texts", "area", "time", "cache", "cost", "each text", "method")
ABOUT_PAGE = (
    "Rows that anybody measured; CONTRIBUTING.md says how to add one. Rows stand in one table only if all settings but"
    " the extension are the same: model, texts, tasks, lengths. Intervals are of 95 %."
)
ABOUT_ROWS = (
    "`loss`: of the last tokens at the longest length, in nats per token; `found`: right answers about what is farther"
    " back than the trained length; `short texts`: rise of the loss on texts of the trained length.",
    "`area`: mean over all lengths measured, on an axis of log2(length), of the loss above the unchanged model's at its"
    " trained length, text by text.",
    "`time`, `cache`: at the longest length; time over that of the unchanged model on the same machine. `cost`: time"
    " times cache, each over the unchanged model's.",
    f"`method`: *{OLD}* where a file with a formula, or a task, is not the one that was measured.",
)


# Writing rows.


def row_path(folder: str | Path, model: str, length: int, line: str) -> Path:
    """Where the row of an extension is: a folder for each model and length."""
    return Path(folder) / f"{_plain(model)}-{length}" / f"{_plain(line)}.json"


def _plain(name: str) -> str:
    """A name as files can have it, a long one with a hash."""
    words = re.sub(r"[^\w.+=,-]+", "-", name).strip("-.") or "row"
    return words if len(words) <= MOST_LETTERS else f"{words[:MOST_LETTERS]}-{mark_of(name.encode())[:8]}"


def require_new_row(path: Path, *, force: bool) -> None:
    """Refuse to write over a row that somebody measured."""
    if not force and holds(path.exists):
        raise Conflict.because(
            "submit", f"{path} exists", remedy="choose another folder, or replace it with --force (force=True)"
        )


def write_rows(comparison: Comparison, folder: str | Path, *, force: bool = False) -> list[Path]:
    """Write a row for each extension that was measured at every length, and the page of all rows of the folder."""
    for task in comparison.tasks:
        if source_mark(task):
            sentence = f"the task {task.title} is not Ropewalk's, so that nobody else could measure the row again"
            raise InvalidValue.because("tasks", sentence, remedy="leave it out of --tasks")
    made, target = comparison.made, comparison.lengths[-1]
    rows = {
        row_path(folder, made["model"], target, one.line): one
        for one in comparison.candidates[1:]
        if all(one.at(Context.name, length) for length in comparison.lengths)
    }
    for path, candidate in rows.items():
        require_new_row(path, force=force)
        require_portable(_line_of(candidate).methods)
    for path, candidate in rows.items():
        records = path.with_name(path.stem + RECORDS)
        write_files(_line_of(candidate).methods, path.parent, earlier=path)
        with whole_file(records) as file:
            file.write(
                gzip.compress(json.dumps(_records(comparison, candidate), separators=(",", ":")).encode(), mtime=0)
            )
        row = row_of(comparison, candidate, records.name)
        write_whole(path, json.dumps(row, indent=1) + "\n")
    if rows:
        write_whole(Path(folder) / PAGE, board_page(Path(folder)))
    return list(rows)


def _line_of(candidate: Candidate) -> Any:
    """The extension that was asked for, without what the model was trained under."""
    return candidate.rows[0].extension


def row_of(comparison: Comparison, candidate: Candidate, records: str = "") -> Json:
    """One row: settings, results, and what measured them."""
    made = {name: value for name, value in comparison.made.items() if name not in ("model", "texts")}
    count = max(task.samples for task in comparison.tasks)
    extension = _line_of(candidate)
    row = {
        "format": ROW_FORMAT,
        "line": candidate.line,
        "settings": {
            "model": comparison.made["model"],
            "marks": comparison.marks,
            "texts": comparison.made["texts"][:count],
            "projects": list(comparison.projects),
            "trained_len": comparison.trained_len,
            "lengths": list(comparison.lengths),
            "tasks": [{**task.to_json(), "version": task.version} for task in comparison.tasks],
            "extension": extension.to_json(),
        },
        "results": _results(comparison, candidate),
        "base": _results(comparison, comparison.base),
        "made": {**made, "devices": sorted({name for row in candidate.rows for name in row.devices})},
        "method": {spec.name: formula_mark(type(spec)) for spec in extension.methods},
        "records": records,
    }
    return dict(finite_json(row))


def _results(comparison: Comparison, candidate: Candidate) -> Json:
    numbers: dict[str, dict[str, Json]] = {}
    for row in candidate.rows:
        of_task = numbers.setdefault(row.task.title, {})
        of_task[str(row.length)] = {name: estimate.to_json() for name, estimate in row.numbers.items()}
    far, slowdown = far_share(candidate.rows, comparison.lengths[-1]), candidate.slowdown
    return {
        "change": candidate.change.to_json(),
        "found": far.to_json() if far else None,
        "harm": candidate.harm.to_json(),
        "area": area(comparison, candidate).to_json(),
        "cache_bytes": candidate.cache_bytes,
        "seconds": sum(row.seconds for row in candidate.rows),
        "slowdown": slowdown,
        "cost": slowdown * candidate.cache_bytes / max(1, comparison.base.cache_bytes),
        "numbers": numbers,
    }


def _records(comparison: Comparison, candidate: Candidate) -> Json:
    """The results of every text, of the extension and of the unchanged model, as `results.json` has them."""
    return {
        "candidates": [
            {"line": one.line, "rows": [_record(row.task.title, row.length, row.samples) for row in one.rows]}
            for one in (comparison.base, candidate)
        ]
    }


def _record(task: str, length: int, samples: Sequence[Json]) -> Json:
    return {"task": task, "length": length, "samples": rounded(finite_json(samples))}


def rounded(value: Any) -> Any:
    """Numbers with few digits: the intervals are wider by far."""
    if isinstance(value, Mapping):
        return {key: rounded(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(one) for one in value]
    return float(f"{value:.{RECORD_DIGITS}g}") if isinstance(value, float) else value


# Reading rows.


def read_row(path: Path) -> Json:
    """A row, if it is one."""
    rule, row = "the file of a row, as `ropewalk compare --submit` writes it", read_record(path, "the file of a row")
    if row.get("format") != ROW_FORMAT:
        remedy = "measure it anew: ropewalk compare MODEL EXTENSION --to LENGTH --submit FOLDER"
        raise Unreadable(str(path), f"{rule}, with the format {ROW_FORMAT!r}", row.get("format"), remedy=remedy)
    settings = row.get("settings")
    missing = [name for name in PARTS if not isinstance(row.get(name), dict)]
    missing += [f"settings.{name}" for name in SETTINGS if not isinstance(settings, dict) or name not in settings]
    if missing:
        raise Unreadable.because(str(path), f"{path} has no {missing[0]}", remedy="take the file as it was written")
    return row


def read_records(path: Path, row: Json) -> dict[str, list[Json]]:
    """The results of every text beside a row: of its line, and of the unchanged model."""
    place = path.parent / str(row.get("records"))
    packed = read_bytes(place, str(place), "the results of every text, which lie beside a row")
    try:
        content = read_json(gzip.decompress(packed), str(place))
        return {one["line"]: one["rows"] for one in content["candidates"] if one["line"] in (BARE, row["line"])}
    except (OSError, EOFError, KeyError, TypeError) as wrong:
        raise Unreadable(str(place), "JSON of a row's texts, compressed", repr(wrong)) from wrong


def rows_in(folder: Path) -> dict[Path, Json]:
    """All rows below a folder."""
    return {path: read_row(path) for path in sorted(folder.glob("*/*.json"))}


def is_current(path: Path, row: Json) -> bool:
    """Whether the formulas and the tasks of a row are those of today's code. No file of others is run."""
    files = {one.name: path.parent / one.file for one in files_in(row["settings"]["extension"])}
    ours = {kind.name: kind for _, kinds, *_ in SLOTS.values() for kind in kinds}

    def today(name: str) -> str:
        if name in files:
            return mark_of(read_bytes(files[name], "submit", "a method")) if holds(files[name].is_file) else ""
        kind = ours.get(name) or offered(name)
        return formula_mark(kind) if kind else ""

    tasks = ((task.get("name"), task.get("version")) for task in row["settings"]["tasks"])
    same = all(name in NAMES and NAMES[name].version == version for name, version in tasks)
    return same and all(mark and today(name) == mark for name, mark in row["method"].items())


# The page, from the files alone.


def board_page(folder: Path) -> str:
    """One table for each model, length and other settings; then what `compare --all` measured, if it is there."""
    tables: dict[str, list[tuple[Path, Json]]] = {}
    for path, row in rows_in(folder).items():
        apart = {name: value for name, value in row["settings"].items() if name != "extension"}
        tables.setdefault(mark_of(json.dumps(apart, sort_keys=True).encode()), []).append((path, row))
    groups = sorted((_tier(rows[0][1]), rows[0][0], mark, rows) for mark, rows in tables.items())
    parts, tiers = ["# Leaderboard", ABOUT_PAGE], list[int]()
    for tier, _, mark, rows in groups:
        parts += [f"## {TIERS[tier]}"] * (tier not in tiers)
        parts += _table(folder, rows, mark)
        tiers.append(tier)
    parts.append("\n".join(f"- {words}" for words in ABOUT_ROWS))
    if holds((folder / DATA).is_file):
        shown = next((name for name in ("leaderboard.svg", "leaderboard.png") if holds((folder / name).is_file)), "")
        race = markdown(read_record(folder / DATA, "a leaderboard"), shown)
        parts.append(race.replace("\n## ", "\n### ").replace("# Leaderboard: ", "## All presets: ", 1).rstrip("\n"))
    return "\n\n".join(parts) + "\n"


def _tier(row: Json) -> int:
    small = (row["made"].get("parameters") or math.inf) < SMALL_MODEL
    return 2 if row["settings"]["model"] == NAME else 1 if small else 0


def _table(folder: Path, rows: Sequence[tuple[Path, Json]], mark: str) -> Iterator[str]:
    settings = rows[0][1]["settings"]
    marks, lengths, projects = settings["marks"], settings["lengths"], settings["projects"]
    tasks = ", ".join(f"{task['name']} ({task.get('samples')})" for task in settings["tasks"])
    yield f"### {prose(model_of(settings))} at {lengths[-1]:,} tokens"
    yield (
        f"Trained on {settings['trained_len']:,} tokens; {', '.join(f'{length:,}' for length in lengths)} tokens of"
        f" {texts(len(projects))}{of_projects(projects)} were read, of {code(marks['corpus'])}, in"
        f" {code(marks['dtype'])}. Tasks, and samples: {prose(tasks)}. Weights {code(marks['weights'])}, settings"
        f" {code(mark)}."
    )
    ranked = sorted(rows, key=lambda one: (_loss(one[1]["results"], settings), one[1]["line"]))
    told = [_row(folder, path, row) for path, row in ranked]
    base = (name_of(BARE), *_figures(rows[0][1]["base"], settings), "-", "-")
    yield markdown_table([HEAD, *told, base])


def _loss(results: Json, settings: Json) -> float:
    value = results["numbers"][Context.name][str(settings["lengths"][-1])]["loss"]["value"]
    return math.inf if value is None else float(value)


def _row(folder: Path, path: Path, row: Json) -> tuple[str, ...]:
    place = path.parent.relative_to(folder).as_posix()
    there = posixpath.normpath(f"{place}/{row['records']}")
    links = f"[settings]({place}/{path.name})" + (f", [texts]({there})" if row.get("records") else "")
    state = "as here" if is_current(path, row) else OLD
    return code(row["line"]), *_figures(row["results"], row["settings"]), links, state


def _figures(results: Json, settings: Json) -> tuple[str, ...]:
    slowdown, cost = results["slowdown"], results["cost"]
    return (
        f"{_loss(results, settings):.3f}",
        percent(results["found"]),
        interval(results["harm"]),
        interval(results["area"]) if results["area"]["value"] is not None else "-",
        "-" if slowdown is None else f"{slowdown:.1f}x",
        size(results["cache_bytes"]),
        "-" if cost is None else f"{cost:.2f}",
    )
