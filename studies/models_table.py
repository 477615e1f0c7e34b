"""A table of models: its methods by name, its finished models, and the texts that all of them are measured on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import torch

from ropewalk.errors import InvalidValue, UnknownName, Unreadable
from ropewalk.files import read_json, read_text
from ropewalk.folders import write_whole
from ropewalk.measure.metrics.losses import HeldOutTexts
from ropewalk.texts.corpora import WHOLE

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


def held_out_in(folder: Path, *, count: int, length: int, choose: Callable[[], HeldOutTexts]) -> HeldOutTexts:
    """The texts of a folder; chosen now where nothing is measured yet.

    A table that is resumed on another machine, with other packages, would otherwise be measured on other texts.
    """
    stored, rule = folder / "held_out.json", f"{count} texts of {length} tokens, each with its project"
    if not stored.is_file():
        if any((folder / "measured").glob("*.json")):
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
