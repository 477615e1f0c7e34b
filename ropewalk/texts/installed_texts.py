"""What this Python has installed, as texts with names: sources, descriptions, the language's reference, recent files.

A recent file is one whose own copyright lines name no year before a given one. An install keeps no dates: pip sets the
times of files, and a package of this year has files of ten years. A file that says "2012-2026" was changed in 2026, and
one that says nothing may be of any year; neither is recent.
"""

from __future__ import annotations

import hashlib
import os
import re
import sysconfig
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import distributions
from pathlib import Path

from ropewalk.files import text_in_pieces

STDLIB, PACKAGES = PYTHON = ("stdlib", "purelib")  # of Python's installation, by sysconfig's names
HEAD = 2000  # characters of a file, in which its copyright stands
STATED = re.compile(r"(?:copyright|\(c\)|\N{COPYRIGHT SIGN})[^\n]*", re.IGNORECASE)
YEAR = re.compile(r"\b(?:19|20)\d\d\b")


def sources(*kinds: str) -> dict[str, Path]:
    """The Python files of some kinds, by name."""
    files: dict[str, Path] = {}
    for kind in kinds:
        root = sysconfig.get_path(kind)
        for folder, below, names in os.walk(root):
            if kind == STDLIB and "site-packages" in below:
                below.remove("site-packages")
            inside = Path(folder).relative_to(root).as_posix()
            start = kind if inside == "." else f"{kind}/{inside}"
            files.update({f"{start}/{name}": Path(folder, name) for name in names if name.endswith(".py")})
    return files


def recent_sources(year: int) -> dict[str, Path]:
    """The files of packages that say that they are of a year or later, by name."""
    return {name: path for name, path in sources(PACKAGES).items() if (first_year(_head(path)) or 0) >= year}


def first_year(text: str) -> int | None:
    """The first year that the copyright lines of a text name; None where they name none."""
    years = [int(year) for line in STATED.findall(text) for year in YEAR.findall(line)]
    return min(years, default=None)


def _head(path: Path) -> str:
    return next(text_in_pieces(path, "corpus", "readable files", HEAD))


def descriptions() -> Iterator[tuple[str, str]]:
    """The long descriptions of installed packages; each belongs to its package's project."""
    named = ((package.metadata["Name"], package) for package in distributions())
    packages = {name.lower(): package for name, package in named if name}  # what a broken install left has none
    for name in sorted(packages, key=lambda name: hashlib.sha256(name.encode()).digest()):
        _, _, text = (packages[name].read_text("METADATA") or "").partition("\n\n")
        yield f"{PACKAGES}/{name}/METADATA", text


def reference() -> Iterator[tuple[str, str]]:
    """The topics of the language's reference, which `help()` shows; some distributions of Python leave them out."""
    try:
        topics: dict[str, str] = import_module("pydoc_data.topics").topics
    except ImportError:
        return
    for topic, text in sorted(topics.items()):
        yield f"{STDLIB}/pydoc_data/topics/{topic}", text
