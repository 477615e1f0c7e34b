"""What computes a number, besides the model and its texts: it is part of the name under which a number is stored.

A method that is changed, or another torch, gives other numbers. A report that is changed does not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

from ropewalk.files import read_bytes

PACKAGE = Path(__file__).parents[2]  # ropewalk/measure/material/measured_by.py
NO_NUMBERS = ("cli", "engines", "page", "measure/report", "serve")  # parts that show, run or carry what others compute
COMPUTING = ("torch", "transformers", "tokenizers")


@lru_cache
def code_marks() -> dict[str, str]:
    """A hash of the sources that compute numbers, and the versions of what computes below them."""
    return {"sources": sources_of(PACKAGE, without=NO_NUMBERS), **{name: _public(name) for name in COMPUTING}}


def _public(name: str) -> str:
    """A version without its build: a store may move from a machine with a GPU to one without."""
    return version(name).partition("+")[0]


def sources_of(root: Path, *, without: Sequence[str] = ()) -> str:
    """A hash of all Python files below a folder, without some of the folders in it."""
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root)
        if not any(name.is_relative_to(part) for part in without):
            digest.update(name.as_posix().encode())
            digest.update(read_bytes(path, "ropewalk", "an install whose files can be read"))
    return digest.hexdigest()[:16]
