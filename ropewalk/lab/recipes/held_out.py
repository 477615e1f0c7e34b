"""Held-out texts that all models of a table are measured on, kept in its folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from ropewalk.errors import Unreadable
from ropewalk.evaluation import HeldOutTexts
from ropewalk.files import read_json, read_text
from ropewalk.folders import write_whole

REMEDY = "bring back the file that the table was begun with, or begin in another folder"


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
