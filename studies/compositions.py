"""The table of studies/results/compositions, from the losses beside it.

python -m studies.compositions FOLDER   collect FOLDER/*/results.json, which its commands wrote, into losses.json
"""

import json
import sys
from pathlib import Path
from typing import Any

from ropewalk.measure.metrics.intervals import crossed_mean

from tools.generated_part import with_part
from tools.markdown_table import table_of

HERE = Path(__file__).parent / "results" / "compositions"
OURS, RIVALS = "long_reach", ("self_extend+log_n", "rerope+log_n")
CORPORA = {
    "stdlib": "modules of the standard library",
    "python": "modules and packages",
    "books": "books",
}
LENGTHS = {"2k": 2048, "4k": 4096, "8k": 8192, "16k": 16384}


def collected(place: Path, length: int) -> dict[str, Any]:
    """What one command measured at its target length: the loss of every text, and which passkeys were found."""
    result = json.loads(place.read_text("utf-8"))
    lines = {}
    for one in result["candidates"]:
        rows = {row["task"].partition(":")[0]: row["samples"] for row in one["rows"] if row["length"] == length}
        lines[one["line"]] = {"losses": [sample["loss"] for sample in rows["context"]]}
        lines[one["line"]] |= {"found": [sample["right"] for sample in rows.get("passkey", [])]}
    return {name: result[name] for name in ("command", "made", "marks", "projects")} | {"lines": lines}


def row(length: str, corpus: str, lines: dict[str, Any], projects: list[str]) -> list[str]:
    """One length and corpus; intervals are over projects, or over books, since texts of one are alike."""
    mine = lines[OURS]["losses"]
    gaps = [
        crossed_mean([[a - b for a, b in zip(mine, lines[rival]["losses"], strict=True)]], groups=projects)
        for rival in RIVALS
    ]
    cells = [f"{gap.value:+.3f} [{gap.low:+.3f}, {gap.high:+.3f}]" for gap in gaps]
    asked = [lines[line]["found"] for line in (OURS, *RIVALS)]
    keys = f"{' / '.join(f'{sum(one):g}' for one in asked)} of {len(asked[0])}" if asked[0] else ""
    mean = sum(mine) / len(mine)
    texts = f"{len(mine)} of {len(set(projects))} {CORPORA[corpus]}"
    return [length, texts, f"{mean:.3f}", *cells, keys]


def table(measured: dict[str, Any]) -> str:
    """All of them, shorter texts first."""
    head = ["tokens", "texts", "nats", *(f"minus `{rival}`" for rival in RIVALS), "passkeys"]
    names = [(length, corpus) for length in LENGTHS for corpus in CORPORA if f"{corpus}-{length}" in measured]
    studies = [(length, corpus, measured[f"{corpus}-{length}"]) for length, corpus in names]
    rows = [row(length, corpus, study["lines"], study["projects"]) for length, corpus, study in studies]
    return table_of(head, rows)


def compositions_page() -> str:
    """The page with its table."""
    text, measured = (HERE / "README.md").read_text("utf-8"), json.loads((HERE / "losses.json").read_text("utf-8"))
    return with_part(text, "differences", table(measured))


def collect(folder: Path) -> None:
    """Losses of all commands that were run, into one small file; what was not run again stays."""
    places = [(f"{corpus}-{name}", length) for name, length in LENGTHS.items() for corpus in CORPORA]
    runs = [(name, folder / name / "results.json", length) for name, length in places]
    stored = HERE / "losses.json"
    measured = json.loads(stored.read_text("utf-8")) if stored.is_file() else {}
    measured |= {name: collected(place, length) for name, place, length in runs if place.exists()}
    stored.write_text(json.dumps(measured, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    collect(Path(sys.argv[1]))
