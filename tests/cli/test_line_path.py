"""The path of a line from its text to the model: read once, built once, checked once for the model and each layer."""

from collections import Counter

import pytest
import torch

import ropewalk as rw
from ropewalk.cli.main import run
from ropewalk.extension import parsing
from ropewalk.extension.extension import Extension
from ropewalk.measure.comparison import comparison
from ropewalk.measure.comparison.store import Store

from architecture.ranks import RANK
from architecture.tree import PACKAGE, watch
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


@pytest.mark.nightly
def test_generate_calls_downwards_only(folder):
    """From the command line to the kernel no part calls one above it, but for the progress that the caller passed.

    A record that checks itself calls the `check` of its own class.
    """
    upwards = set()

    def part(frame):
        name = frame.f_code.co_filename
        inside = name.startswith(f"{PACKAGE}/")
        return name.removeprefix(f"{PACKAGE}/").split("/")[0].removesuffix(".py") if inside else ""

    def look(frame, event, _):
        caller = frame.f_back if event == "call" and part(frame) else None
        while caller is not None and not part(caller):
            caller = caller.f_back
        if caller is not None and RANK.get(part(frame), 0) > RANK.get(part(caller), 99):
            upwards.add((part(caller), part(frame), frame.f_code.co_name))

    line = ["generate", str(folder), "rerope:window=8", "--prompt", "w1 w2", "--max-new-tokens", "2"]
    assert watch(look, lambda: run(line)) == 0
    assert {(above, below) for above, below, name in upwards if name != "check"} <= {("hf", "measure")}, upwards
    assert {name for above, _, name in upwards if above == "hf"} == {"__call__"}  # of measure/progress.py
    assert torch.is_grad_enabled()
