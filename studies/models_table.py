"""A table of models: its methods by name, its finished models, and the texts that all of them are measured on."""

from __future__ import annotations

import gzip
import json
import shutil
import zlib
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import torch

from ropewalk.errors import InvalidValue, UnknownName, Unreadable
from ropewalk.files import finite_json, read_json, read_text
from ropewalk.folders import replace_files, write_whole
from ropewalk.measure.metrics.losses import HeldOutTexts
from ropewalk.texts.corpora import WHOLE

MEASURED, PACKED = "measured", ".json.gz"  # the folder of a table's measurements, one file for each model
REMEDY = "bring back the file that the table was begun with, or begin in another folder"


def named_methods(names: str, known: Collection[str], owner: str) -> list[str]:
    """The methods of a table of models, by their names, which are separated by commas."""
    listed = [name.strip() for name in names.split(",")]
    for name in listed:
        if name not in known:
            raise UnknownName("method", name, known=known, owner=owner)
    return listed


def require_held_out(corpus: str) -> None:
    """Refuse a corpus without a held-out part where models are measured on it."""
    if corpus.startswith(WHOLE):
        rule = "one with a held-out part, to measure the models on"
        raise InvalidValue("corpus", rule, corpus, remedy=f"pass {corpus.removeprefix(WHOLE)}")


def finished(place: Path, train: Callable[[], object]) -> bool:
    """Whether the model of a folder is finished: it is trained now unless it was. False where a signal stopped it.

    The checkpoints of a finished model are removed.
    """
    made = place / "model" / "config.json"
    if not made.is_file():
        train()
    if made.is_file():
        for kept in place.glob("checkpoint-*"):
            shutil.rmtree(kept)
    return made.is_file()


def measured_file(folder: Path, name: str) -> Path:
    """The file of one model's measurements in the folder of its table."""
    return folder / MEASURED / f"{name}{PACKED}"


def write_measured(path: Path, figures: Mapping[str, Any]) -> None:
    """What was measured of one model; packed, and equal figures make equal files."""
    text = json.dumps(finite_json(figures), separators=(",", ":")) + "\n"
    path.parent.mkdir(exist_ok=True)
    with replace_files(path.parent) as place:
        (place / path.name).write_bytes(gzip.compress(text.encode(), mtime=0))


def measured_in(folder: Path) -> list[dict[str, Any]]:
    """What was measured of every model of a table."""
    return [_unpacked(path) for path in sorted((folder / MEASURED).glob(f"*{PACKED}"))]


def table_in(folder: Path) -> dict[str, Any]:
    """What the claims of a table follow from: measurements, the texts' projects, and the settings it was begun with."""
    texts = read_json(read_text(folder / "held_out.json", "held_out", "the texts of this table"), "held_out.json")
    plan = read_json(read_text(folder / "recipe.json", "recipe", "the settings of this table"), "recipe.json")
    models = measured_in(folder)
    steps = {"steps": max(model["steps"] for model in models)}  # which a tuning table may change
    longest = len(texts["tokens"][0])  # of a text
    return {"models": models, "projects": texts["projects"], "plan": steps | plan, "longest_text": longest}


def _unpacked(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(gzip.decompress(path.read_bytes())))
    except (OSError, EOFError, ValueError, zlib.error) as wrong:
        raise Unreadable(str(path), "what was measured", str(wrong), remedy="remove it, to measure it again") from wrong


def held_out_in(folder: Path, *, count: int, length: int, choose: Callable[[], HeldOutTexts]) -> HeldOutTexts:
    """The texts of a folder; chosen now where nothing is measured yet.

    A table that is resumed on another machine, with other packages, would otherwise be measured on other texts.
    """
    stored, rule = folder / "held_out.json", f"{count} texts of {length} tokens, each with its project"
    if not stored.is_file():
        if any((folder / MEASURED).glob(f"*{PACKED}")):
            raise Unreadable(str(stored), rule, "no file, and models that were measured on it", remedy=REMEDY)
        chosen = choose()
        write_whole(stored, json.dumps({"projects": chosen.projects, "tokens": chosen.ids_bn.tolist()}) + "\n")
    read = read_json(read_text(stored, "held_out", "the texts of this table"), str(stored))
    if not _fits(read, count, length):
        raise Unreadable(str(stored), rule, "something else", remedy=REMEDY)
    return HeldOutTexts(torch.tensor(read["tokens"], dtype=torch.long), tuple(read["projects"]))


def _fits(read: Any, count: int, length: int) -> bool:
    """Whether there are so many names, and rows of so many whole numbers."""
    match read:
        case {"projects": list(projects), "tokens": list(rows)}:
            named = len(projects) == count and all(isinstance(project, str) for project in projects)
            return named and len(rows) == count and all(_is_row(row, length) for row in rows)
    return False


def _is_row(row: Any, length: int) -> bool:
    return isinstance(row, list) and len(row) == length and all(type(token) is int for token in row)
