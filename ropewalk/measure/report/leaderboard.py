"""`leaderboard.json`: every number of a leaderboard; and `leaderboard.md`, which is written from it alone."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ropewalk.extension.notation import BARE
from ropewalk.files import finite_json
from ropewalk.measure.comparison.race import Leaderboard, RankedEntry
from ropewalk.measure.metrics.intervals import Estimate
from ropewalk.measure.report.comparison import write_report
from ropewalk.measure.report.drawing.names import name_of
from ropewalk.measure.report.drawing.paper import formats_of
from ropewalk.measure.report.figures import keys_of
from ropewalk.measure.report.html_page import PagePart
from ropewalk.measure.report.leaderboard_picture import RUNS, picture
from ropewalk.measure.report.tables import size
from ropewalk.measure.report.titles import of_projects
from ropewalk.measure.report.written_tables import PageTable, code, code_block, markdown_table, prose
from ropewalk.methods.spec import Json

PLAIN = re.compile(r"(?!www\.)[\w./ -]+")
DATA, PAGE = "leaderboard.json", "leaderboard.md"
BOARD, NAME = "leaderboard", "Leaderboard"  # the key in results.json, and the heading
ABOUT = "The lines that were measured on all texts, the lowest loss first."
STOPPED_NAME, ABOUT_STOPPED = (
    "Not in the leaderboard",
    "What was dropped early, and what was not measured, with the reason.",
)
LEGEND = (
    "`minus the best`: difference of the losses on the same texts, in nats per token.",
    "`right`: right answers to the tasks that ask, such as passkeys, at the target length.",
    "`short texts`: rise of the loss on texts of the trained length; below 0 it falls.",
    "`pairs`: query-key pairs of all layers, over those of full attention.",
    "`time`: over that of the model without an extension. A figure that the folder has is kept: it may be of an"
    " earlier run and of another machine; `-` where the two are of other kinds of devices.",
    "`runs in`: vLLM as it is, vLLM with Ropewalk's plugin, or Ropewalk alone.",
    "`front`: *yes* if no other line is as good in every column and better in one; *in its class* if none is that runs"
    " wherever this one runs; else the line that is. Losses count to 0.01, harm to 0.02, caches to a twentieth;"
    " time does not count.",
)
AGAIN = (
    "The losses, the answers found and the harm follow from the model, the texts and the versions: a rerun on another"
    " machine differs by rounding (about 1e-5 nats). `pairs`, `cache` and `runs in` are computed, and equal everywhere."
    " Only `time` is noise: it differs by tenths from run to run, and by more from machine to machine."
)


def write_leaderboard(board: Leaderboard, folder: str | Path, *, command: str = "", pictures: str = "") -> Path:
    """The report of the lines that were not dropped, and beside it the leaderboard as Markdown and JSON."""
    values = finite_json(as_json(board, command))
    shown = next((f"{BOARD}.{kind}" for kind in ("svg", "png") if kind in formats_of(pictures)), "")
    files = {DATA: json.dumps(values, indent=1) + "\n", PAGE: markdown(values, shown)}
    figures = (picture(board, keys_of(board.comparison)),) if board.entries else ()  # nobody may have a loss
    parts = [
        PagePart(NAME, ABOUT, figures, table(values)),
        PagePart(
            STOPPED_NAME, ABOUT_STOPPED, (), PageTable(("extension", "why"), tuple(stopped(values)), ends_in_words=True)
        ),
    ]
    more = {BOARD: ranking_json(board)}
    return write_report(
        board.comparison, folder, command=command, before=parts, files=files, more=more, pictures=pictures
    )


def as_json(board: Leaderboard, command: str = "") -> Json:
    """Every number, text by text, and everything needed to measure it again."""
    comparison = board.comparison
    return {
        "command": command,
        "made": comparison.made,
        "marks": comparison.marks,
        "trained_len": comparison.trained_len,
        "tasks": [{**task.to_json(), "version": task.version} for task in comparison.tasks],
        "projects": list(comparison.projects),
        **ranking_json(board),
    }


def ranking_json(board: Leaderboard) -> Json:
    """What a leaderboard has beyond the comparison of its lines."""
    return {
        "target_len": board.comparison.lengths[-1],
        "rounds": [one._asdict() for one in board.rounds],
        "planned": list(board.planned),
        "entries": [_entry(entry) for entry in board.entries],
        "dropped": [{**drop._asdict(), "behind": drop.behind._asdict()} for drop in board.dropped],
        "left_out": [out._asdict() for out in board.left_out],
    }


def _entry(entry: RankedEntry) -> Json:
    row = entry.candidate.at("context", max(row.length for row in entry.candidate.rows))
    return {
        "line": entry.candidate.line,
        "extension": entry.candidate.extension.to_json(),
        "needs": entry.costs.needs,
        "runs": entry.costs.deployment,
        "loss": row.numbers["loss"]._asdict() if row else None,
        "behind": entry.behind._asdict(),
        "right": entry.right._asdict() if entry.right else None,
        "harm": entry.harm._asdict() if entry.harm else None,
        "slowdown": entry.candidate.slowdown,
        "key_share": entry.costs.key_share,
        "cache_bytes": entry.candidate.cache_bytes,
        "front": not entry.beaten_by,
        "front_of_class": not entry.beaten_in_class,
        "beaten_by": entry.beaten_by,
        "losses": list(entry.losses),
    }


def markdown(values: Json, picture: str = "") -> str:
    """The page, from what `leaderboard.json` holds, with the file of its picture if there is one."""
    head, rows, _ = table(values)
    parts = [
        f"# Leaderboard: {_model(values)} at {values['target_len']:,} tokens",
        _about(values),
        *[f"![Loss against what is found, harm, cost and cache]({picture})"] * bool(rows and picture),
        markdown_table([head, *[(_code(name), *map(prose, cells)) for name, *cells in rows]]),
        "\n".join(f"- {words}" for words in LEGEND),
        *_section(
            "Not in the leaderboard", ("extension", "why"), [(_code(name), prose(why)) for name, why in stopped(values)]
        ),
        "## Run it again",
        code_block(values["command"], "bash"),
        AGAIN,
        markdown_table([("what", "value"), *_provenance(values)]),
    ]
    return "\n\n".join(parts) + "\n"


def _about(values: Json) -> str:
    """What was measured, and whether there was time for all of it."""
    done, planned = values["rounds"], values["planned"]
    texts, lines = done[-1]["texts"], len(values["entries"])
    projects = of_projects(values.get("projects", [])[:texts])
    words = (
        f"The model was trained on {values['trained_len']:,} tokens. {lines} lines read {texts} texts{projects} of"
        f" {code(values['marks'].get('corpus', ''))}, the lowest loss first. Intervals are of 95 %, each for"
        " one line alone: the best of many looks better than it is."
    )
    read = " and ".join(f"{one['lines']} lines read {one['texts']} texts" for one in done[:-1])
    words += f" Before, {read}; what was clearly behind stopped." if read else ""
    if len(done) < len(planned):
        words += f" Time was up after round {len(done)} of {len(planned)}; the same command continues."
    return words


def table(values: Json) -> PageTable:
    """One row for each line that was measured on all texts."""
    length = f"{values['target_len']:,}"
    of_loss = ("extension", f"loss at {length}", "minus the best", "right", "short texts")
    head = (*of_loss, "pairs", "time", "cache", "runs in", "front")
    return PageTable(head, tuple(map(_row, values["entries"])), ends_in_words=True)


def _row(entry: Json) -> tuple[str, ...]:
    tuned = " (made for tuning)" if entry["needs"] == "tuning" else ""
    return (
        name_of(entry["line"]) + tuned,
        f"{entry['loss']['value']:.3f}",
        interval(entry["behind"]) if entry["behind"]["value"] else "best",
        percent(entry["right"]),
        interval(entry["harm"]),
        f"{entry['key_share']:.2f}",
        f"{entry['slowdown']:.1f}x" if entry["slowdown"] is not None else "-",
        size(entry["cache_bytes"]),
        RUNS[entry["runs"]],
        _standing(entry),
    )


def _standing(entry: Json) -> str:
    if entry["front"]:
        return "yes"
    behind = f"behind {name_of(entry['beaten_by'])}"
    return f"in its class; {behind}" if entry["front_of_class"] else behind


def interval(estimate: Mapping[str, Any] | None) -> str:
    """A difference with its interval, to three digits; a dash where it was not measured."""
    if estimate is None:
        return "-"
    value, low, high = (estimate[name] for name in ("value", "low", "high"))
    if value is not None and low is high is None and "of" in estimate:
        return f"{_signed(value)} [{Estimate(value, -math.inf, math.inf, estimate['of']).why_open}]"
    return f"{_signed(value)} [{_signed(low)}, {_signed(high)}]"


def _signed(value: float | None) -> str:
    if value is None:
        return "?"
    words = f"{value:+.3f}"
    return words if float(words) else "0.000"


def percent(estimate: Mapping[str, Any] | None) -> str:
    """A share with its interval; a dash where it was not measured."""
    if estimate is None:
        return "-"
    value, low, high = (f"{100 * estimate[name]:.0f}" for name in ("value", "low", "high"))
    return f"{value}% [{low}, {high}]"


def stopped(values: Json) -> list[tuple[str, str]]:
    """What is not in the table, and why: what was dropped, the last round first; then the rest, by its reason."""
    dropped = sorted(values["dropped"], key=lambda drop: (-drop["round"], drop["behind"]["value"]))
    names: dict[str, list[str]] = {}
    for out in values["left_out"]:
        names.setdefault(out["why"], []).append(out["name"])
    reasons = [(", ".join(alike), why) for why, alike in names.items()]
    return [*((drop["line"], _why_dropped(drop)) for drop in dropped), *reasons]


def _why_dropped(drop: Json) -> str:
    return (
        f"dropped in round {drop['round']}: on {drop['texts']} texts its loss ({drop['loss']:.3f}) is"
        f" {interval(drop['behind'])} against {name_of(drop['rival'])}, which is no worse in all else;"
        f" the whole interval is above {drop['threshold']:g}"
    )


def _provenance(values: Json) -> Iterator[tuple[str, str]]:
    made = values["made"]
    yield "when", str(made.get("when", ""))
    yield "versions", ", ".join(f"{name} {number}" for name, number in made.get("versions", {}).items())
    yield "python", prose(f"{made.get('python', '')}, {made.get('machine', '')}")
    yield from ((name, code(mark)) for name, mark in values["marks"].items())
    yield "texts", " ".join(code(mark) for mark in made.get("texts", [])[: values["rounds"][-1]["texts"]])


def _section(name: str, head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    return [f"## {name}", markdown_table([head, *rows])] if rows else []


def _code(names: str) -> str:
    """Lines as code; what is said of one in brackets stays words."""
    lines, space, words = names.partition(" (")
    return names if names == name_of(BARE) else f"{', '.join(map(code, lines.split(', ')))}{space}{words}"


def _model(values: Json) -> str:
    """The model's name, as code where it is more than letters."""
    name = values["made"].get("model") or "a model"
    return name if PLAIN.fullmatch(name) else code(name)
