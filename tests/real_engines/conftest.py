"""The real engines: `make engines` installs them, each into an environment beside `.venv`, and runs this folder.

`make test` does not come here: `norecursedirs` in pyproject.toml leaves the folder out unless it is named.
"""

import os
from pathlib import Path

import pytest
import torch

import ropewalk as rw

from real_engines import models
from real_engines.record import Record

ROOT = Path(__file__).resolve().parents[2]
# Engines share the cores: with pytest-xdist each takes one, and so do the processes that it starts.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))


def pytest_addoption(parser):
    parser.addoption("--write", action="store_true", help="write what was measured into docs/results/engines")


@pytest.fixture(scope="session")
def records(request):
    """One record for each engine, written at the end of the session if `--write` asks for it."""
    kept: dict[str, Record] = {}
    yield lambda engine, version: kept.setdefault(engine, Record(engine, version))
    if request.config.getoption("--write"):
        for record in kept.values():
            record.write(ROOT / "docs" / "results" / "engines")


@pytest.fixture(scope="session")
def plain(tmp_path_factory):
    """The carried model as it was trained, as a GGUF file."""
    place = tmp_path_factory.mktemp("plain") / "out"
    with rw.extended(model := models.carried(), "rope"):
        rw.export(model, place, target="llama.cpp", tokenizer=models.carried_tokenizer())
    return place / "model.gguf"
