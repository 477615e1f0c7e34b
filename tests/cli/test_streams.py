"""The command under terminals, logs and pipes of every kind: one sentence or nothing, and never a traceback."""

import json
import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from ropewalk.cli.parser import app

pytestmark = pytest.mark.nightly

LIST = ["show", "--json"]  # has letters that are not in ASCII
UNKNOWN = ["show", "\u044f\u0440\u043d"]
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def command(arguments, redirected="", **environment):
    """The command in a shell, where streams can be closed."""
    return subprocess.run(
        ["sh", "-c", f'"$0" -m ropewalk "$@" {redirected}', sys.executable, *arguments],
        capture_output=True,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": ":".join(sys.path), "PYTHONIOENCODING": "", **environment},
    )


@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"])
def test_closed_streams(closed, folder, tmp_path):
    """The work is done, what would be said goes nowhere, and no file is opened under the number of a stream."""
    done = command(["extend", str(folder), "yarn:factor=4", "--out", str(tmp_path / "out")], closed)
    assert (done.returncode, done.stderr) == (0, b"")
    for name in ("model.safetensors", "tokenizer.json"):
        assert (tmp_path / "out" / name).read_bytes() == (folder / name).read_bytes()
    refused = command(UNKNOWN, closed)
    assert refused.returncode == 2
    assert b"Traceback" not in refused.stderr
    assert refused.stdout == b""


def test_a_reader_that_leaves():
    left = command(["show"], "| head -1")
    assert left.stderr == b""
    assert left.stdout.count(b"\n") == 1


@pytest.mark.parametrize("how", [{"PYTHONIOENCODING": "ascii"}, ASCII])
def test_a_terminal_without_all_letters(how):
    listed = command(LIST, **how)
    assert (listed.returncode, listed.stderr) == (0, b"")
    assert json.loads(listed.stdout) == json.loads(CliRunner().invoke(app, LIST).stdout)
    refused = command(UNKNOWN, **how)
    assert (refused.returncode, refused.stderr.count(b"\n")) == (2, 1)
    assert b"got '\\" in refused.stderr


def test_a_width_that_nobody_can_read_in():
    """Rich prints nothing at all for a width of 0."""
    wide, none, few = (command(["show"], COLUMNS=columns).stdout for columns in ("80", "0", "-3"))
    assert wide == none == few != b""


@pytest.mark.parametrize(
    "arguments",
    [
        ["compare", "default", "yarn", "--out", "/proc"],
        ["diagnose", "default", "yarn", "--out", "/proc"],
        ["fit", "default", "--out", "/proc"],
        ["stream", "default", "streaming", "--out", "/proc"],
        ["train", "pretrain", "--out", "/proc", "--set", "steps=1"],
        ["extend", "default", "yarn:factor=2", "--out", "/proc/new"],
        ["export", "default", "yarn:factor=2", "--out", "/proc/new"],
    ],
)
def test_a_folder_where_nothing_can_be_written_is_refused_before_a_model_is_loaded(arguments, monkeypatch):
    monkeypatch.setattr("ropewalk.hf.checkpoint.fetch._fetch", None)
    assert "where files can be written, got '/proc'" in str(CliRunner().invoke(app, arguments).exception)
