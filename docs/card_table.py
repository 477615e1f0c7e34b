"""The figures on the card of the model that comes with Ropewalk, from docs/results/card/card.json.

python docs/card_table.py FOLDER...   collect what `ropewalk compare` wrote into these folders into that file

The commands stand on the card. Only the base model's figures at its trained length are kept. Intervals are over
projects: texts of one project are alike.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ropewalk.evaluation.metrics.intervals import Estimate, crossed, share

PLACE = Path(__file__).parent / "results" / "card" / "card.json"
TEXTS = {
    "python": "held-out projects of `python`",
    "stdlib": "held-out standard library",
    "all:folder:unseen": "Django 5.2, Flask 3.1, Scrapy 2.19, Celery 5.7, which it has not seen",
    "all:folder:books": "*Moby Dick*, *Ulysses*, *Anna Karenina*, which it has not seen",
}
HEAD = "| text | of | nats a token | accuracy | bits a byte |\n|---|---|---|---|---|"
FILLERS = {"text": "held-out text", "grass": "the five sentences about grass"}
COLUMNS = ("loss", "accuracy", "bits_per_byte")
Figures = Mapping[str, Any]


def card_table() -> str:
    """A row for each kind of text."""
    texts = json.loads(PLACE.read_text("utf-8"))["texts"]
    return "\n".join([HEAD, *(_row(words, texts[corpus]) for corpus, words in TEXTS.items())])


def passkeys_found() -> str:
    """How many passkeys are found in each filler, as a sentence."""
    found = json.loads(PLACE.read_text("utf-8"))["passkeys"]
    parts = [f"{sum(found[name])} of {len(found[name])} in {words}" for name, words in FILLERS.items()]
    low = min(share(sum(found[name]), len(found[name])).low for name in FILLERS)
    return f"Passkeys in 512 tokens, depths evenly spread: it finds {' and '.join(parts)} (each at least {low:.1%})."


def _row(words: str, study: Figures) -> str:
    projects = study["projects"]
    means = [crossed([study["samples"][name]], groups=projects, least=0) for name in COLUMNS]
    of = f"{len(projects)} texts of {len(set(projects))}"
    return f"| {' | '.join([words, of, *map(_interval, means)])} |"


def _interval(estimate: Estimate) -> str:
    return f"{estimate.value:.2f} [{estimate.low:.2f}, {estimate.high:.2f}]"


def collect(folders: list[Path]) -> None:
    """What the card needs, text by text, into one small file."""
    kept: dict[str, Any] = {"commands": [], "texts": {}, "passkeys": {}}
    for folder in folders:
        results = json.loads((folder / "results.json").read_text("utf-8"))
        kept["commands"].append(results["command"])
        kept |= {"made": results["made"], "weights": results["marks"]["weights"]}
        for task, samples in _of_the_base_model(results):
            if task["name"] == "passkey":
                kept["passkeys"][task.get("filler", "text")] = [sample["right"] for sample in samples]
            elif task["last"] == 511:  # every token that has a prediction
                figures = {name: [sample[name] for sample in samples] for name in COLUMNS}
                kept["texts"][results["marks"]["corpus"]] = {"projects": results["projects"], "samples": figures}
    PLACE.parent.mkdir(exist_ok=True)
    PLACE.write_text(json.dumps(kept, indent=1) + "\n", "utf-8")


def _of_the_base_model(results: Figures) -> Iterator[tuple[Figures, list[Figures]]]:
    """Each task that was asked for, with what the base model gave at its trained length."""
    rows = {row["task"]: row["samples"] for row in results["contenders"][0]["rows"] if row["length"] == 512}
    return zip(results["tasks"], rows.values(), strict=True)


if __name__ == "__main__":
    collect([Path(name) for name in sys.argv[1:]])
