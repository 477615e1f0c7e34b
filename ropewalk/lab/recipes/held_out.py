"""Held-out texts that all models of a table are measured on, kept in its folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import torch

from ropewalk.errors import Unreadable
from ropewalk.evaluation import HeldOutTexts
from ropewalk.files import read_json, read_text, why
from ropewalk.folders import write_whole


def held_out_in(folder: Path, *, count: int, length: int, choose: Callable[[], HeldOutTexts]) -> HeldOutTexts:
    """The texts of a folder; chosen now where it has none.

    A table that is resumed on another machine, with other packages, would otherwise be measured on other texts.
    """
    stored = folder / "held_out.json"
    if not stored.is_file():
        chosen = choose()
        write_whole(stored, json.dumps({"projects": chosen.projects, "tokens": chosen.ids_bn.tolist()}) + "\n")
    read = read_json(read_text(stored, "held_out", "the texts of this table"), str(stored))
    try:
        tokens, projects = torch.tensor(read["tokens"], dtype=torch.long), tuple(read["projects"])
        return HeldOutTexts(tokens.reshape(count, length), tuple(map(str, projects[:count])))
    except (KeyError, TypeError, ValueError, RuntimeError) as wrong:
        rule = f"{count} texts of {length} tokens, each with its project"
        raise Unreadable(str(stored), rule, why(wrong), remedy="remove it, and it is made again") from wrong
