"""A row is written, and measured again from its settings: the figures agree, or a sentence says why there are none."""

import json
import shutil
from pathlib import Path

import pytest

import ropewalk as rw
from ropewalk.cli.main import run
from ropewalk.cli.output import KEYS
from ropewalk.measure.redo import redo
from ropewalk.measure.report.submitted import read_row, row_path, rows_in

pytestmark = pytest.mark.nightly

BOARD = Path(__file__).parents[2] / "docs" / "results" / "leaderboard"
QUIET = rw.RunOptions(progress=False)
METHOD = '''
from dataclasses import dataclass
from ropewalk.methods.reach.reach import Reach, last

@dataclass(frozen=True, kw_only=True)
class Near(Reach):
    """Near: the nearest 16 keys.

        j > i - 16

    Source: a test, 2026.
    """

    name = "near"

    def spans(self):
        return (last(16),)
'''


def asked(place, out, *more):
    options = ["--lengths", "48,64", "--samples", "3", "--corpus", f"folder:{place / 'texts'}", "-o", str(out)]
    return ["compare", str(place / "model"), *more, *options]


@pytest.fixture(scope="module")
def folder(place, tmp_path_factory):
    """Two rows of a tiny model; the method of one comes from a file."""
    where = tmp_path_factory.mktemp("rows")
    (where / "near.py").write_text(METHOD)
    line = asked(place, where / "report", "yarn", f"{where / 'near.py'}:Near", "--submit", str(where / "board"))
    assert run(line) == 0
    return where / "board"


def row_of(folder, word):
    return next(path for path, row in rows_in(folder).items() if word in row["line"])


def again(place, path, *more):
    return run(["compare", str(place / "model"), "--redo", str(path), "--workers", "1", *more])


def test_a_row_has_everything_that_was_measured(folder, place):
    path = row_of(folder, "yarn")
    row = read_row(path)
    assert path == row_path(folder, "model", 64, "yarn")
    assert row["settings"]["lengths"] == [32, 48, 64]
    assert rw.Extension.from_json(row["settings"]["extension"]) == rw.parse("yarn", trained_len=32, target_len=64)
    results = json.loads((folder.parent / "report" / "results.json").read_text())
    measured = next(one for one in results["candidates"] if one["line"] == "yarn")
    by_length = {str(part["length"]): part["numbers"] for part in measured["rows"]}
    assert row["results"]["numbers"] == {"context": by_length}
    assert row["results"]["change"] == measured["change"]
    assert "| `yarn` |" in (folder / "leaderboard.md").read_text()


def test_a_row_agrees_when_it_is_measured_again(folder, place, capsys):
    assert again(place, row_of(folder, "yarn")) == 0
    assert ", 0 others; times apart" in capsys.readouterr().out


def test_fewer_texts_are_compared_one_by_one(folder, place, capsys):
    assert again(place, row_of(folder, "yarn"), "--samples", "2", "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert set(printed) == set(KEYS["compare --redo"])
    figures = printed["figures"]
    assert len(figures) == 2 * 3 * 2  # lines, lengths, texts
    assert {figure["verdict"] for figure in figures} == {"equal"}


def test_a_figure_that_was_changed_does_not_agree(folder, place, tmp_path, capsys):
    shutil.copytree(folder, tmp_path / "board")
    path = row_of(tmp_path / "board", "yarn")
    row = read_row(path)
    row["results"]["cache_bytes"] += 1
    path.write_text(json.dumps(row))
    assert again(place, path) == 1
    assert ", 1 others; times apart" in capsys.readouterr().out


def test_a_method_of_a_file_runs_if_it_is_trusted(folder, place, tmp_path, capsys):
    """In another process, which has not read the file yet, it is refused; `admit` has tests of its own."""
    shutil.copytree(folder, tmp_path / "board")
    path = row_of(tmp_path / "board", "Near")
    assert again(place, path, "--trust-remote-code") == 0
    (path.parent / "near.py").write_text(METHOD.replace("16)", "8)"))
    assert again(place, path, "--trust-remote-code") == 2
    assert "near.py is not the file that near was" in capsys.readouterr().err


def refused(capsys, line):
    assert run(line) == 2
    return capsys.readouterr().err


def test_a_row_is_not_written_over(folder, place, tmp_path, capsys):
    said = refused(capsys, asked(place, tmp_path / "report", "yarn", "--submit", str(folder)))
    assert "yarn.json exists; choose another folder, or replace it with --force (force=True)" in said
    shutil.copy(folder.parent / "report" / "cells.sqlite", tmp_path)
    before = read_row(row_of(folder, "yarn"))
    assert run([*asked(place, tmp_path, "yarn", "--submit", str(folder), "--force")]) == 0
    assert read_row(row_of(folder, "yarn"))["results"] == before["results"]


def test_another_model_or_other_texts_are_refused(folder, place, tmp_path, capsys):
    path = row_of(folder, "yarn")
    said = refused(capsys, ["compare", "--redo", str(path)])
    assert "measured on 'model', a folder of whoever measured it; say where it is here: ropewalk compare MODEL" in said
    (tmp_path / "texts").mkdir()
    for number, text in enumerate(sorted((place / "texts").rglob("*.*"))):
        if text.is_file():
            (tmp_path / "texts" / f"{number}.txt").write_text("other words " + text.read_text())
    line = ["compare", str(place / "model"), "--redo", str(path), "--corpus", f"all:folder:{tmp_path / 'texts'}"]
    assert "are not those that the row was measured on; use the versions" in refused(capsys, line)
    with pytest.raises(rw.DoesNotFit, match=r"the row is of a model with weights .* name the model that was measured"):
        redo(path, "default", options=QUIET)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["yarn", "--lengths", "64", "--submit", "{file}"], "a folder, or a new name for one"),
        (
            ["--to", "64", "--submit", "{new}"],
            "--submit needs extensions; ropewalk compare MODEL EXTENSION --to LENGTH",
        ),
        (["yarn", "--submit", "{new}"], "--submit needs the length of the texts; ropewalk compare MODEL EXTENSION"),
        (["yarn", "--all", "--to", "64", "--submit", "{new}"], "--submit and --all do not go together"),
        (["yarn", "--to", "64", "--force"], "--force is for --submit alone; leave it out"),
        (["--redo", "{file}", "--to", "64"], "which leaves no choice of lengths; leave it out"),
        (["--redo", "{file}"], "must be the file of a row"),
    ],
)
def test_options_that_do_not_go_together(place, tmp_path, capsys, more, words):
    (tmp_path / "file").write_text("{}")
    line = [word.format(file=tmp_path / "file", new=tmp_path / "new") for word in more]
    assert words in refused(capsys, ["compare", str(place / "model"), *line, "-o", str(tmp_path / "report")])


def test_a_task_of_a_file_stands_in_no_leaderboard(place, tmp_path):
    compared = rw.compare(
        place / "model", "yarn", lengths=64, samples=2, tasks="context", corpus=f"folder:{place / 'texts'}"
    )
    rows = compared.submit(tmp_path / "board")
    assert [path.name for path in rows] == ["yarn.json"]
    with pytest.raises(rw.Conflict, match=r"exists; choose another folder, or replace it with --force \(force=True\)"):
        compared.submit(tmp_path / "board")


# The committed rows.


def carried():
    return [path for path, row in rows_in(BOARD).items() if row["settings"]["model"] == "default"]


@pytest.mark.parametrize("path", carried(), ids=lambda path: path.stem)
def test_the_committed_rows_of_the_carried_model(path):
    """Two of their texts; where the standard library is another one, its texts are, and nothing can be said."""
    try:
        done = redo(path, samples=2, options=QUIET)
    except rw.DoesNotFit as other:
        if "are not those that the row was measured on" not in str(other):
            raise
        pytest.skip("another standard library has other texts")
    assert done.agrees, done.words
    assert len(done.figures) == 2 * 4 * 2  # lines, lengths, texts


def test_of_fewer_texts_only_what_asks_the_same_is_compared(tmp_path, capsys):
    """A passkey of two texts stands at other depths than the first two of three."""
    options = ["--lengths", "1k", "--samples", "3", "--time", "none", "--tasks", "passkey", "-o", str(tmp_path / "out")]
    assert run(["compare", "default", "yarn", *options, "--submit", str(tmp_path / "board")]) == 0
    redone = ["compare", "default", "--samples", "2", "--redo", str(row_of(tmp_path / "board", "yarn")), "--json"]
    capsys.readouterr()
    assert run(redone) == 0
    names = [figure["name"] for figure in json.loads(capsys.readouterr().out)["figures"]]
    assert {name.split(" at ")[0] for name in names} == {"base model: context", "yarn: context"}
