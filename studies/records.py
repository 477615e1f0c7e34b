"""The small file of a study: what its claims follow from."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Record = Mapping[str, Any]


def read(place: Path) -> dict[str, Any]:
    """A JSON file of records: a study's, or the results of a command."""
    return dict(json.loads(place.read_text("utf-8")))


def write(place: Path, kept: Record) -> None:
    """What claims follow from."""
    place.parent.mkdir(exist_ok=True)
    place.write_text(json.dumps(kept, indent=1) + "\n", "utf-8")


def command_of(results: Record, folder: str = "FOLDER") -> str:
    """The command of some results, with another name for its folder."""
    return re.sub(r"--out \S+", f"--out {folder}", results["command"])
