"""The real engines: `make engines` installs them, each into an environment beside `.venv`, and runs this folder.

`make test` does not come here: `norecursedirs` in pyproject.toml leaves the folder out unless it is named.
"""

from pathlib import Path

import pytest
import torch
from engines.record import Record

ROOT = Path(__file__).resolve().parents[2]
torch.set_num_threads(2)  # one process at a time here


def pytest_addoption(parser):
    parser.addoption("--write", action="store_true", help="write what was measured into docs/results/engines")


def pytest_configure(config):
    if config.getoption("--write") and config.getoption("keyword"):
        raise pytest.UsageError("--write replaces the whole file of an engine: run its folder without -k")


@pytest.fixture(scope="session")
def records(request):
    """One record for each engine, written at the end of the session if `--write` asks for it."""
    kept: dict[str, Record] = {}
    yield lambda engine, version: kept.setdefault(engine, Record(engine, version))
    if request.config.getoption("--write") and not request.session.testsfailed:
        for record in kept.values():
            record.write(ROOT / "docs" / "results" / "engines")
