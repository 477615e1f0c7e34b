"""What is installed on a node: numbers of several nodes belong together only if all run the same code."""

from __future__ import annotations

import hashlib
import platform
import socket
from collections.abc import Mapping
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

from ropewalk.errors import DoesNotFit
from ropewalk.files import read_bytes

PACKAGES = ("ropewalk", "torch", "transformers", "tokenizers")
SOURCES = "ropewalk's sources"


@lru_cache
def installed() -> dict[str, str]:
    """Versions, and a hash of Ropewalk's own sources, which an editable install may have changed."""
    python = ".".join(platform.python_version_tuple()[:2])
    return {"python": python, **{name: version(name) for name in PACKAGES}, SOURCES: _sources()}


def _sources() -> str:
    root, digest = Path(__file__).parents[2], hashlib.sha256()  # ropewalk/evaluation/compare/installed.py
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode())
        digest.update(read_bytes(path, "ropewalk", "an install whose files can be read"))
    return digest.hexdigest()[:16]


def require_same(driver: Mapping[str, str]) -> None:
    """Refuse a node on which anything differs from the driver."""
    here = installed()
    for name, wanted in driver.items():
        if here.get(name) != wanted:
            rule = f"{wanted}, as on the driver"
            remedy = "install the same packages on all nodes"
            raise DoesNotFit(f"{name} on node {socket.gethostname()}", rule, here.get(name), remedy=remedy)
