"""Held-out texts that all models of a table are measured on, kept in its folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from ropewalk.errors import Unreadable
from ropewalk.evaluation import HeldOutTexts
from ropewalk.files import read_json, read_text, why
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
    try:
        return _texts(read["projects"], read["tokens"], count, length)
    except (KeyError, TypeError, ValueError) as wrong:
        raise Unreadable(str(stored), rule, why(wrong), remedy=REMEDY) from wrong


def _texts(projects: Any, tokens: Any, count: int, length: int) -> HeldOutTexts:
    named = isinstance(projects, list) and all(isinstance(project, str) for project in projects)
    if not named or len(projects) != count:
        raise ValueError(f"projects that are not {count} names")
    if [len(row) for row in tokens] != [length] * count or {type(token) for row in tokens for token in row} != {int}:
        raise ValueError(f"tokens that are not {count} rows of {length} whole numbers")
    return HeldOutTexts(torch.tensor(tokens, dtype=torch.long), tuple(projects))
