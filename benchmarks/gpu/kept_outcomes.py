"""A plugin of pytest that writes down each outcome as it comes. pytest's own report is lost where its processes are
interrupted, and a GPU that is lent for minutes ends in the middle of tests.

A kernel that reads outside its memory breaks CUDA for its process: every later test there fails, whatever it tests.
Such a process ends after the test that broke it, and pytest-xdist starts another."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

FILE = "GPU_OUTCOMES"  # the environment variable that names the file
BROKEN = 70  # the exit status of a process whose CUDA is broken


def pytest_configure(config: Any) -> None:
    """Listen in the process that collects the outcomes of all others."""
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(_EndOnceBroken())
    elif FILE in os.environ:
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


class _EndOnceBroken:
    """In a process that runs tests for another: ends it after a failed test that broke CUDA."""

    def __init__(self) -> None:
        self.failed = False

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Called with each part's outcome."""
        self.failed |= report.failed

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logfinish(self) -> None:
        """Called when a test has ended and its outcome has been sent."""
        if self.failed and cuda_is_broken():
            os._exit(BROKEN)  # an ordinary exit waits for the device
        self.failed = False


def cuda_is_broken() -> bool:
    """Whether the device refuses even to wait for what was asked of it."""
    import torch

    if not torch.cuda.is_available():
        return False
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return True
    return False


def kept(path: Path) -> dict[str, dict[str, str]]:
    """The outcome of every test that has one; of a test whose parts differ, the first that did not pass."""
    outcomes: dict[str, dict[str, str]] = {}
    for line in map(json.loads, path.read_text().splitlines() if path.exists() else []):
        if outcomes.get(line["test"], {}).get("outcome") != "failed":
            outcomes[line["test"]] = line
    return outcomes
