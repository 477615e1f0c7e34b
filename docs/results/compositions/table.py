"""Write the tables of this folder's README from the results beside it: `python docs/results/compositions/table.py`."""

import json
from pathlib import Path

from ropewalk.evaluation.metrics.intervals import difference

HERE = Path(__file__).parent
OURS, RIVALS = "long_reach", ("self_extend+log_n", "rerope+log_n")
CORPORA = {"stdlib": "standard library", "python": "standard library and packages", "books": "books"}
LENGTHS = ("2k", "4k", "8k", "16k")
BEGIN, END = "<!-- tables -->", "<!-- end of tables -->"


def losses(result: dict, line: str, task: str) -> list[float]:
    """Of each text, under one line."""
    (candidate,) = [one for one in result["contenders"] if one["line"] == line]
    (row,) = [row for row in candidate["rows"] if row["task"].startswith(task)]
    return [sample["loss"] for sample in row["samples"]]


def found(result: dict, line: str) -> str:
    """Passkeys found, where they were asked for."""
    (candidate,) = [one for one in result["contenders"] if one["line"] == line]
    rows = [row for row in candidate["rows"] if row["task"].startswith("passkey")]
    return (
        f"{sum(sample['right'] for row in rows for sample in row['samples']):g} of {len(rows[0]['samples'])}"
        if rows
        else ""
    )


def tables() -> str:
    """One row for each length and corpus."""
    lines = ["| tokens | texts | nats | " + " | ".join(f"minus `{rival}`" for rival in RIVALS) + " | passkeys |"]
    lines += ["|---|---|---|---|---|---|"]
    for length in LENGTHS:
        for corpus, name in CORPORA.items():
            place = HERE / f"{corpus}-{length}" / "results.json"
            if not place.exists():
                continue
            result = json.loads(place.read_text("utf-8"))
            mine = losses(result, OURS, "context")
            gaps = [difference(mine, losses(result, rival, "context")) for rival in RIVALS]
            cells = [f"{gap.value:+.3f} [{gap.low:+.3f}, {gap.high:+.3f}]" for gap in gaps]
            keys = " / ".join(filter(None, (found(result, line) for line in (OURS, *RIVALS))))
            mean = sum(mine) / len(mine)
            lines.append(f"| {length} | {len(mine)}, {name} | {mean:.3f} | {' | '.join(cells)} | {keys} |")
    return "\n".join(lines)


if __name__ == "__main__":
    page = HERE / "README.md"
    text = page.read_text("utf-8")
    page.write_text(f"{text.partition(BEGIN)[0]}{BEGIN}\n{tables()}\n{END}{text.partition(END)[2]}", "utf-8")
