"""The notebook: its cells run, and print what it shows."""

import contextlib
import io
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOK = ROOT / "examples" / "write_your_own_method.ipynb"
NUMBER = re.compile(r"-?\d+\.\d+")


def test_the_cells_print_what_is_shown(monkeypatch):
    monkeypatch.chdir(NOTEBOOK.parent)
    names: dict[str, object] = {}
    for cell in json.loads(NOTEBOOK.read_text())["cells"]:
        if cell["cell_type"] != "code":
            continue
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile("".join(cell["source"]), NOTEBOOK.name, "exec"), names)
        expected = "".join(text for output in cell["outputs"] for text in output["text"])
        assert NUMBER.sub("_", out.getvalue()) == NUMBER.sub("_", expected)
        # Losses are printed to two places: processors may round the last one differently.
        assert _numbers(out.getvalue()) == pytest.approx(_numbers(expected), abs=0.02)


def _numbers(text: str) -> list[float]:
    return [float(number) for number in NUMBER.findall(text)]


def test_it_is_small():
    assert NOTEBOOK.stat().st_size < 20_000
