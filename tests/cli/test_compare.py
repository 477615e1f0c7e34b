"""`ropewalk compare`, as it is called."""

import json

import pytest

from ropewalk.cli.main import run
from ropewalk.lab.models import Shape, fresh

from lab.texts import folder_of, tokenizer


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    path = tmp_path_factory.mktemp("compare")
    fresh(Shape(vocabulary=300, width=32, inner=64, layers=2, heads=2, trained_len=128)).save_pretrained(path / "model")
    tokenizer().save_pretrained(path / "model")
    folder_of(path / "texts", count=120, words=200)
    return path


def compare(place, out, *more):
    given = ["--lengths", "256", "--samples", "2", "--corpus", f"folder:{place / 'texts'}", "-o", str(out), *more]
    return run(["compare", str(place / "model"), "yarn", "window:window=32", *given])


def test_a_table_a_report_and_advice(place, tmp_path, capsys):
    assert compare(place, tmp_path / "report") == 0
    said = capsys.readouterr().out
    results = json.loads((tmp_path / "report" / "results.json").read_text())
    assert [each["line"] for each in results["contenders"]] == ["bare", "yarn", "window:window=32"]
    assert results["lengths"] == [128, 256]
    assert "The report:" in said
    assert ("Use " in said) or ("use none" in said)
    assert (tmp_path / "report" / "report.html").stat().st_size > 20_000


def test_the_same_command_measures_nothing_again(place, tmp_path, capsys, monkeypatch):
    assert compare(place, tmp_path) == 0
    first = json.loads((tmp_path / "results.json").read_text())
    monkeypatch.setattr("ropewalk.evaluation.runner.result_of", None)  # would fail where it is called
    assert compare(place, tmp_path) == 0
    again = json.loads((tmp_path / "results.json").read_text())
    assert again["contenders"] == first["contenders"]


def test_tasks_are_named_with_their_values(place, tmp_path, capsys):
    assert compare(place, tmp_path, "--tasks", "stream:samples=1,every=1,back=1") == 0
    results = json.loads((tmp_path / "results.json").read_text())
    assert [(task["name"], task["samples"]) for task in results["tasks"]] == [("context", 2), ("stream", 1)]
    assert "stream: right" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--lengths", "many"], "--lengths must be"),
        (["--lengths", "64"], "--lengths must be at least the trained length (128)"),
        (["--corpus", "nowhere"], "corpus must be one of"),
        (["--samples", "1"], "samples"),
        (["yern"], "'yern'"),
        (["--tasks", "nedle"], "task must be one that there is, got 'nedle'; known: context"),
        (["--tasks", "needle"], "length must be at least"),
    ],
)
def test_errors_are_one_line(place, tmp_path, capsys, given, words):
    assert compare(place, tmp_path, *given) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1
