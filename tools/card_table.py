"""The figures on the card of the model that comes with Ropewalk, from studies/results/card/card.json.

python tools/card_table.py FOLDER...   collect what `ropewalk compare` wrote into these folders into that file

The commands stand on the card. Only the base model's figures at its trained length are kept. Intervals are over
projects: texts of one project are alike.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from markdown_table import table_of

from ropewalk.measure.metrics.intervals import LOSS, SHARE, Estimate, crossed_mean, share
from ropewalk.measure.report.titles import of_projects

PLACE = Path(__file__).resolve().parents[1] / "studies" / "results" / "card" / "card.json"
TEXTS = {
    "python": "held-out projects of `python`",
    "stdlib": "held-out standard library",
    "all:folder:unseen": "Django 5.2, Flask 3.1, Scrapy 2.19, Celery 5.7, which it has not seen",
    "all:folder:books": "*Moby Dick*, *Ulysses*, *Anna Karenina*, which it has not seen",
}
HEAD = ("kind of text", "texts", "nats a token", "accuracy", "bits a byte")
FILLERS = {"text": "held-out text", "grass": "the five sentences about grass"}
PUZZLES = {"niah_single_1": "with a single needle in noise", "vt": "of variable tracking"}
COLUMNS = {"loss": LOSS, "accuracy": SHARE, "bits_per_byte": LOSS}
Figures = Mapping[str, Any]


def card_table() -> str:
    """A row for each kind of text."""
    texts = json.loads(PLACE.read_text("utf-8"))["texts"]
    return table_of(HEAD, (_row(words, texts[corpus]) for corpus, words in TEXTS.items()))


def passkeys_found() -> str:
    """How many passkeys are found in each filler, as a sentence."""
    found = json.loads(PLACE.read_text("utf-8"))["passkeys"]
    parts = [f"{sum(found[name])} of {len(found[name])} in {words}" for name, words in FILLERS.items()]
    low = min(share(sum(found[name]), len(found[name])).low for name in FILLERS)
    where = "in 512 tokens, at evenly spread depths"
    return f"Passkeys {where}: it finds {' and '.join(parts)}. The 95 % intervals begin at {low:.1%} or above."


def puzzles_solved() -> str:
    """How many prompts of RULER are solved, as a sentence."""
    solved = json.loads(PLACE.read_text("utf-8"))["ruler"]
    parts = [f"{sum(solved[kind])} of {len(solved[kind])} {words}" for kind, words in PUZZLES.items()]
    return f"Of RULER's prompts in 512 tokens it solves {' and '.join(parts)}."


def _row(words: str, study: Figures) -> list[str]:
    projects = study["projects"]
    means = [
        crossed_mean([study["samples"][name]], groups=projects, least=least, most=most)
        for name, (least, most) in COLUMNS.items()
    ]
    return [words, f"{len(projects)}{of_projects(projects)}", *map(_interval, means)]


def _interval(estimate: Estimate) -> str:
    return f"{estimate.value:.2f} [{estimate.low:.2f}, {estimate.high:.2f}]"


def collect(folders: list[Path]) -> None:
    """What the card needs, text by text, into one small file."""
    kept: dict[str, Any] = {"commands": [], "texts": {}, "passkeys": {}, "ruler": {}}
    for results in (json.loads((folder / "results.json").read_text("utf-8")) for folder in folders):
        weights = {"weights": results["marks"]["weights"]}
        if kept.setdefault("marks", weights) != weights:
            sys.exit(f"{results['command']} measured another model than the folders before")
        kept["commands"].append(results["command"])
        kept["made"] = results["made"]
        rows = {row["task"]: row["samples"] for row in results["candidates"][0]["rows"] if row["length"] == 512}
        puzzles = {kind: [sample["right"] for sample in rows[kind]] for kind in PUZZLES if kind in rows}
        if puzzles:
            kept["ruler"] |= puzzles
        elif "passkey" in rows:
            filler = next(task["filler"] for task in results["tasks"] if task["name"] == "passkey")
            kept["passkeys"][filler] = [sample["right"] for sample in rows["passkey"]]
        else:
            figures = {name: [sample[name] for sample in rows["context"]] for name in COLUMNS}
            kept["texts"][results["marks"]["corpus"]] = {"projects": results["projects"], "samples": figures}
    missing = {*TEXTS, *FILLERS, *PUZZLES} - {*kept["texts"], *kept["passkeys"], *kept["ruler"]}
    if missing:
        sys.exit(f"name the folders of all commands on the card; missing: {', '.join(sorted(missing))}")
    PLACE.parent.mkdir(exist_ok=True)
    PLACE.write_text(json.dumps(kept, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    collect([Path(name) for name in sys.argv[1:]])
