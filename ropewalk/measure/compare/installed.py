"""What is installed on a node: numbers of several nodes belong together only if all run the same code."""

from __future__ import annotations

import platform
import socket
from collections.abc import Mapping
from datetime import datetime, timezone
from functools import lru_cache
from importlib.metadata import version

from ropewalk.errors import DoesNotFit
from ropewalk.measure.material.measured_by import PACKAGE, sources_of
from ropewalk.methods.spec import Json

PACKAGES = ("ropewalk", "torch", "transformers", "tokenizers")
SOURCES = "ropewalk's sources"


@lru_cache
def installed_versions() -> dict[str, str]:
    """Versions, and a hash of Ropewalk's own sources, which an editable install may have changed."""
    python = ".".join(platform.python_version_tuple()[:2])
    return {"python": python, **{name: version(name) for name in PACKAGES}, SOURCES: sources_of(PACKAGE)}


def require_same(driver: Mapping[str, str]) -> None:
    """Refuse a node on which anything differs from the driver."""
    here = installed_versions()
    for name, wanted in driver.items():
        if here.get(name) != wanted:
            rule = f"{wanted}, as on the driver"
            remedy = "install the same packages on all nodes"
            raise DoesNotFit(f"{name} on node {socket.gethostname()}", rule, here.get(name), remedy=remedy)


def provenance(*more: str) -> Json:
    """When, where and with which packages and sources something was measured; `more` names further packages."""
    packages = ("ropewalk", "torch", "transformers", "tokenizers", *more)
    return {
        "when": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "versions": {name: version(name) for name in packages},
        "sources": installed_versions()[SOURCES],
    }
