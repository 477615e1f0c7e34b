"""Records: one line of JSON for each case, written as soon as it is known. A later call skips what is there.

A record counts for the same device, versions and sources. What was stopped, or was skipped, is tried again.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import shutil
from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import Any

from gpu.case import Row
from rounds import machine

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "gpu.jsonl"
FINAL = ("measured", "failed")  # others are tried again
PACKAGES = ("triton", "transformers", "vllm")


class Results:
    """The file of records, and its copy in a folder for results, if there is one."""

    def __init__(self, path: Path, device: str, out: Path | None = None) -> None:
        self.path, self.out = path, out
        self.here = {**machine(device), **versions(), "sources": sources()}

    def append(
        self, step: str, case: str, status: str, seconds: float, *, why: str = "", rows: Iterable[Row] = ()
    ) -> Row:
        """Add a record. Records are never edited."""
        about = {"date": date.today().isoformat(), "command": "make gpu", **self.here}
        record = {**about, "step": step, "case": case, "status": status, "why": why, "seconds": round(seconds, 1)}
        record["rows"] = list(rows)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(json.dumps(record) + "\n")
        self.copy_out(self.path)
        return record

    def copy_out(self, path: Path) -> None:
        """A copy of a file in the folder for results."""
        if self.out is not None and path.exists() and path.parent != self.out:
            self.out.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, self.out / path.name)

    def latest(self) -> dict[tuple[str, str], Row]:
        """The last record of each case on this device with these versions and sources."""
        if not self.path.exists():
            return {}
        records = [json.loads(line) for line in self.path.read_text().splitlines()]
        same = [record for record in records if all(record.get(key) == value for key, value in self._key().items())]
        return {(record["step"], record["case"]): record for record in same}

    def final(self, step: str) -> set[str]:
        """The cases of a step that need not be measured again."""
        return {case for (of, case), record in self.latest().items() if of == step and record["status"] in FINAL}

    def _key(self) -> dict[str, Any]:
        return {key: value for key, value in self.here.items() if key != "commit"}


def versions() -> dict[str, str]:
    """The packages that figures depend on, besides torch."""
    named = {}
    for name in PACKAGES:
        try:
            named[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            named[name] = ""
    return named


def sources() -> str:
    """A mark of the code: figures of other code are measured again."""
    folders = ("ropewalk", "benchmarks", "tests/attention")
    digest = hashlib.sha256()
    for path in sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py")):
        digest.update(path.relative_to(ROOT).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:12]
