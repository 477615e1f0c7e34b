"""A plugin of pytest that writes down each outcome as it comes. pytest's own report is lost where its processes are
interrupted, and a GPU that is lent for minutes ends in the middle of tests."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

FILE = "GPU_OUTCOMES"  # the environment variable that names the file


def pytest_configure(config: Any) -> None:
    """Listen in the process that collects the outcomes of all others."""
    if FILE in os.environ and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Keeper(Path(os.environ[FILE])))


class _Keeper:
    """One line for each test, or for each part of it that did not pass."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Called with the outcome of setting up, of the test itself and of cleaning up."""
        if report.when != "call" and report.outcome == "passed":
            return
        crash = getattr(report.longrepr, "reprcrash", None)
        why = crash.message if crash else str(report.longrepr or "")
        line = {"test": report.nodeid, "outcome": report.outcome, "why": why.strip()[:300]}
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")


def kept(path: Path) -> dict[str, dict[str, str]]:
    """The outcome of every test that has one; of a test whose parts differ, the one that did not pass."""
    outcomes: dict[str, dict[str, str]] = {}
    for line in map(json.loads, path.read_text().splitlines() if path.exists() else []):
        if outcomes.get(line["test"], {}).get("outcome") != "failed":
            outcomes[line["test"]] = line
    return outcomes
