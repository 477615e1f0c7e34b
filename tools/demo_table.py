"""The table of `make demo` on the card of the model that comes with Ropewalk, from studies/results/demo/demo.json.

python tools/demo_table.py FOLDER   collect what `make demo` wrote into FOLDER (ropewalk-report) into that file
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

PLACE = Path(__file__).resolve().parents[1] / "studies" / "results" / "demo" / "demo.json"
BASE, ALONE = "bare", "alone"
ALONE_WORDS = "base model, last 512 tokens alone"
HEAD = "| extension | loss at 512 | 1,024 | 2,048 | far numbers found at 2,048 | passage copied | cache at 2,048 |"
Figures = Mapping[str, Any]


class DemoRow(NamedTuple):
    """One extension: means over texts."""

    line: str
    losses: tuple[float, ...]  # at each length
    found: float  # share of the secret numbers that are farther away than 512 tokens, at the longest length
    copied: float | None  # accuracy on a passage from the beginning of the longest texts; None: it was not read
    cache: float  # MiB


def demo_row(line: str, figures: Figures) -> DemoRow:
    """From the figures of every text."""
    losses = tuple(fmean(of_texts) for of_texts in figures["losses"].values())
    found, copied = fmean(figures["found"]), fmean(figures["copied"]) if figures["copied"] else None
    return DemoRow(line, losses, found, copied, figures["cache_bytes"] / 2**20)


def demo_table() -> str:
    """The table, the lowest loss at the longest length first; the best loss and cache are bold."""
    lines = json.loads(PLACE.read_text("utf-8"))["lines"]
    rows = sorted((demo_row(*line) for line in lines.items()), key=lambda row: round(row.losses[-1], 2))
    best, smallest = (min(values) for values in ([row.losses[-1] for row in rows], [row.cache for row in rows]))
    names = {BASE: "base model", ALONE: ALONE_WORDS}
    return "\n".join([HEAD, "|" + "---|" * 7, *(_cells(row, names, best, smallest) for row in rows)])


def _cells(row: DemoRow, names: Mapping[str, str], best: float, smallest: float) -> str:
    *before, last = [f"{loss:.2f}" for loss in row.losses]
    last = f"**{last}**" if row.losses[-1] == best else last
    cache = f"**{row.cache:.3g} MiB**" if row.cache == smallest else f"{row.cache:.3g} MiB"
    name = names.get(row.line, f"`{row.line}`")
    copied = "-" if row.copied is None else f"{row.copied:.0%}"
    return f"| {' | '.join([name, *before, last, f'{row.found:.0%}', copied, cache])} |"


def collect(folder: Path) -> None:
    """What the table needs, text by text, into one small file."""
    results = json.loads((folder / "results.json").read_text("utf-8"))
    trained, *_, longest = results["lengths"]
    lines = {one["line"]: _figures(one, longest) for one in results["candidates"]}
    of_base = {(row["task"], row["length"]): row["samples"] for row in results["candidates"][0]["rows"]}
    losses = [text["loss"] for text in of_base["context", trained]]
    lines[ALONE] = {
        "losses": dict.fromkeys(lines[BASE]["losses"], losses),
        "found": [0],  # none of them is in what it reads
        "copied": [],
        "cache_bytes": results["last_alone"]["cache_bytes"],
    }
    kept = {name: results[name] for name in ("command", "made", "marks")}
    PLACE.parent.mkdir(exist_ok=True)
    PLACE.write_text(json.dumps({**kept, "lines": lines}, indent=1) + "\n", "utf-8")


def _figures(candidate: Figures, longest: int) -> Figures:
    rows = {row["length"]: row["samples"] for row in candidate["rows"] if row["task"] == "context"}
    return {
        "losses": {str(length): [text["loss"] for text in texts] for length, texts in rows.items()},
        "found": [answer["right"] for text in rows[longest] for answer in text["answers"] if answer["far"]],
        "copied": [text["copied"] for text in rows[longest]],
        "cache_bytes": candidate["cache_bytes"],
    }


if __name__ == "__main__":
    collect(Path(sys.argv[1]))
