"""The table of `make demo` on the front pages, from docs/results/demo/demo.json.

python docs/demo_table.py FOLDER   collect what `make demo` wrote into FOLDER (ropewalk-report) into that file
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

PLACE = Path(__file__).parent / "results" / "demo" / "demo.json"
BASE = "bare"
WORDS = {  # the table's head, and the name of the base model
    "README.md": (
        "| extension | loss at 512 | 1,024 | 2,048 | 4,096 | passkeys found at 4,096 | cache at 4,096 |",
        "base model",
    ),
    "README.zh.md": (
        "| 扩展 | 512 处损失 | 1,024 | 2,048 | 4,096 | 4,096 处找到的 passkey | 4,096 处缓存 |",
        "基础模型",
    ),
}
Figures = Mapping[str, Any]


class DemoRow(NamedTuple):
    """One extension: means over texts."""

    line: str
    losses: tuple[float, ...]  # at each length
    found: float  # share of passkeys at the longest length
    cache: float  # MiB


def demo_row(line: str, figures: Figures) -> DemoRow:
    """From the figures of every text."""
    losses = tuple(fmean(of_texts) for of_texts in figures["losses"].values())
    return DemoRow(line, losses, fmean(figures["found"]), figures["cache_bytes"] / 2**20)


def demo_table(name: str) -> str:
    """The table of one front page, the lowest loss at the longest length first; the best loss and cache are bold."""
    head, base = WORDS[name]
    lines = json.loads(PLACE.read_text("utf-8"))["lines"]
    rows = sorted((demo_row(*line) for line in lines.items()), key=lambda row: round(row.losses[-1], 2))
    best, smallest = (min(values) for values in ([row.losses[-1] for row in rows], [row.cache for row in rows]))
    return "\n".join([head, "|" + "---|" * 7, *(_cells(row, base, best, smallest) for row in rows)])


def _cells(row: DemoRow, base: str, best: float, smallest: float) -> str:
    *before, last = [f"{loss:.2f}" for loss in row.losses]
    last = f"**{last}**" if row.losses[-1] == best else last
    cache = f"**{row.cache:.3g} MiB**" if row.cache == smallest else f"{row.cache:.3g} MiB"
    name = base if row.line == BASE else f"`{row.line}`"
    return f"| {' | '.join([name, *before, last, f'{row.found:.0%}', cache])} |"


def collect(folder: Path) -> None:
    """What the table needs, text by text, into one small file."""
    results = json.loads((folder / "results.json").read_text("utf-8"))
    longest = results["lengths"][-1]
    lines = {one["line"]: _figures(one, longest) for one in results["contenders"]}
    kept = {name: results[name] for name in ("command", "made", "marks")}
    PLACE.parent.mkdir(exist_ok=True)
    PLACE.write_text(json.dumps({**kept, "lines": lines}, indent=1) + "\n", "utf-8")


def _figures(contender: Figures, longest: int) -> Figures:
    rows = {(row["task"], row["length"]): row["samples"] for row in contender["rows"]}
    losses = {str(length): [text["loss"] for text in rows[task, length]] for task, length in rows if task == "context"}
    found = [text["right"] for text in rows["passkey", longest]]
    return {"losses": losses, "found": found, "cache_bytes": contender["cache_bytes"]}


if __name__ == "__main__":
    collect(Path(sys.argv[1]))
