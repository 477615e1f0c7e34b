"""The path of a line from its text to the model: read once, built once, checked once for the model and each layer."""

from collections import Counter

import pytest

import ropewalk as rw
from ropewalk.cli.main import run
from ropewalk.extension import parsing
from ropewalk.extension.extension import Extension
from ropewalk.measure.comparison import comparison
from ropewalk.measure.comparison.store import Store

from hf.models import tiny


@pytest.fixture
def counted(monkeypatch):
    """How often a text is read, a line built, and an extension (layers apart) checked."""
    calls = Counter()

    def count(holder, name):
        called = getattr(holder, name)

        def counting(*args, **kwargs):
            calls[name] += 1
            return called(*args, **kwargs)

        monkeypatch.setattr(holder, name, counting)

    count(parsing, "read")
    count(parsing.Line, "build")
    count(Extension, "check_against")
    return calls


def test_extend_reads_and_builds_a_line_once(counted):
    model = tiny("llama", num_hidden_layers=2)
    handle = rw.extend(model, "yarn", target_len=128)
    assert counted["read"] == counted["build"] == 1
    assert counted["check_against"] == 1 + 2 * 2  # the model, and every layer with and without the extension
    rw.extend(model, handle.extension)
    assert counted["read"] == 1


@pytest.mark.parametrize(
    "line", ["generate {} yarn --to 128 --prompt w1 --max-new-tokens 2", "extend {} yarn --to 128 -o {}-out"]
)
def test_a_verb_reads_and_builds_a_line_once(counted, folder, tmp_path, line):
    place = tmp_path / "model"
    place.symlink_to(folder)
    assert run([part.format(place) for part in line.split()]) == 0
    assert counted["read"] == counted["build"] == 1


def test_compare_reads_and_builds_each_line_once(counted, monkeypatch, tmp_path):
    class Subject:
        model, facts = tiny("llama", num_hidden_layers=1), rw.Facts(trained_len=32, head_dim=16)

    stop = lambda *args, **kwargs: 1 / 0  # noqa: E731
    monkeypatch.setattr(comparison, "run", stop)
    with pytest.raises(ZeroDivisionError):
        comparison.measure_candidates(
            Subject(), ["yarn", "rerope+log_n"], [128], store=Store(tmp_path / "cells.sqlite")
        )
    assert counted["read"] == counted["build"] == 2
