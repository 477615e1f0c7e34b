"""Rows of the leaderboard: what they hold, what they refuse, and the page that is written from them alone."""

import copy
import gzip
import json
import math
from pathlib import Path

import pytest

import ropewalk as rw
from ropewalk.extension.outside_code import code_in
from ropewalk.measure.redo import compared
from ropewalk.measure.report.submitted import OLD, board_page, is_current, read_records, read_row, row_path, rows_in

BOARD = Path(__file__).parents[3] / "docs" / "results" / "leaderboard"
REAL = BOARD.parent / "real" / "SmolLM2-135M-Instruct.json.gz"


def estimate(value, low, high):
    return {"value": value, "low": low, "high": high, "of": 2}


@pytest.fixture
def row():
    """A committed row of the carried model."""
    return read_row(row_path(BOARD, "default", 4096, "yarn"))


@pytest.fixture
def folder(tmp_path, row):
    """A folder with that row."""
    path = row_path(tmp_path, "default", 4096, "yarn")
    path.parent.mkdir()
    path.write_text(json.dumps(row))
    return tmp_path


def add(folder, row, line="other", **settings):
    """Another row, of other settings."""
    more = {**copy.deepcopy(row), "line": line}
    more["settings"].update(settings)
    row_path(folder, "default", 4096, line).write_text(json.dumps(more))
    return more


def tables(page):
    return page.count("| extension | loss |")


def test_rows_of_the_same_settings_stand_in_one_table(folder, row):
    add(folder, row)
    assert tables(board_page(folder)) == 1


@pytest.mark.parametrize(
    "settings",
    [{"texts": ["0" * 16]}, {"lengths": [512, 4096]}, {"tasks": []}, {"marks": {"weights": "0"}}],
    ids=lambda settings: next(iter(settings)),
)
def test_a_row_of_other_settings_stands_alone(folder, row, settings):
    marks = {**row["settings"]["marks"], **settings.get("marks", {})}
    add(folder, row, **{**settings, "marks": marks})
    assert tables(board_page(folder)) == 2


def test_the_lowest_loss_stands_first_and_the_base_last(folder, row):
    more = copy.deepcopy(row)
    more["results"]["numbers"]["context"]["4096"]["loss"]["value"] = 0.125
    add(folder, more, "better")
    lines = [line for line in board_page(folder).splitlines() if line.startswith("| ")]
    assert [line.split(" | ")[0] for line in lines] == ["| extension", "| `better`", "| `yarn`", "| base model"]
    assert "| 0.125 |" in lines[1]


def test_a_row_of_another_formula_or_task_says_so(folder, row):
    path = row_path(folder, "default", 4096, "yarn")
    assert is_current(path, row)
    assert OLD not in board_page(folder).split("- `loss`")[0]
    old = {**row, "method": {**row["method"], "by_parts": "0" * 16}}
    assert not is_current(path, old)
    path.write_text(json.dumps(old))
    assert f"| {OLD} |" in board_page(folder)
    task = {**row["settings"]["tasks"][0], "version": 0}
    assert not is_current(path, {**row, "settings": {**row["settings"], "tasks": [task]}})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": "ropewalk row 0"}, "with the format 'ropewalk row 1', got 'ropewalk row 0'; measure it anew"),
        ({"results": None}, "has no results; take the file as it was written"),
        ({"settings": {}}, r"has no settings\.model; take the file as it was written"),
    ],
)
def test_what_is_no_row(folder, row, change, words):
    path = row_path(folder, "default", 4096, "yarn")
    path.write_text(json.dumps({**row, **change}))
    with pytest.raises(rw.Unreadable, match=words):
        read_row(path)


@pytest.mark.parametrize(
    ("before", "now", "verdict"),
    [
        (estimate(1.0, 0.5, 1.5), estimate(1.0, 0.5, 1.5), "equal"),
        (estimate(1.0, 0.5, 1.5), estimate(1.4, 0.9, 1.9), "within the interval"),
        (estimate(1.0, 0.5, 1.5), estimate(1.6, 1.1, 2.1), "differs"),
        (estimate(1.0, None, None), estimate(9.0, None, None), "within the interval"),
        (estimate(None, None, None), estimate(1.0, 0.5, 1.5), "differs"),
        (estimate(1.0, 0.5, 1.5), None, "differs"),
        (1.0, 1.0, "equal"),
        (1.0, 1.009, "within 0.01"),
        (1.0, 1.02, "differs"),
        (1024, 1025, "differs"),
        (None, None, "equal"),
    ],
)
def test_a_figure_agrees_or_not(before, now, verdict):
    (figure,) = compared({"loss": before, "seconds": 1.0}, {"loss": now, "seconds": 2.0})
    assert figure.verdict == verdict
    assert figure.name == "loss"


def test_names_of_files_hold_any_line(tmp_path):
    path = row_path(tmp_path, "owner/model", 1024, "./my.py:Slope:factor=8+log_n")
    assert path == tmp_path / "owner-model-1024" / "my.py-Slope-factor=8+log_n.json"
    long = row_path(tmp_path, "m", 1, "longrope:divisors=" + "1/" * 200)
    assert len(long.name) < 100
    assert long != row_path(tmp_path, "m", 1, "longrope:divisors=" + "1/" * 201)


# The rows that are committed.


def test_the_page_is_written_from_the_rows():
    assert (BOARD / "leaderboard.md").read_text() == board_page(BOARD)


def test_rows_of_the_real_model_are_those_of_its_record():
    record = json.loads(gzip.decompress(REAL.read_bytes()))
    by_line = {one["line"]: one for one in record["candidates"]}
    rows = [row for row in rows_in(BOARD).values() if row["settings"]["model"] == "SmolLM2-135M-Instruct"]
    assert {row["line"] for row in rows} == by_line.keys() - {"bare"}

    def losses(line, length, name="loss"):
        parts = by_line[line]["rows"]
        part = next(part for part in parts if (part["task"], part["length"]) == ("context", length))
        return [sample[name] for sample in part["samples"]]

    def mean(values):
        return math.fsum(values) / len(values)

    base, harm = mean(losses("bare", 8192)), mean(losses("bare", 8192, "whole_loss"))
    for row in rows:
        curve = [mean(losses(row["line"], length)) - base for length in (8192, 16384, 32768)]
        area = (curve[0] + 2 * curve[1] + curve[2]) / 4  # two trapezoids of one octave each, over two octaves
        results = row["results"]
        assert results["area"]["value"] == pytest.approx(area, abs=1e-5)
        assert results["numbers"]["context"]["32768"]["loss"]["value"] == pytest.approx(base + curve[2], abs=1e-5)
        assert results["harm"]["value"] == pytest.approx(mean(losses(row["line"], 8192, "whole_loss")) - harm, abs=1e-5)
        assert results["cost"] == results["slowdown"] * results["cache_bytes"] / row["base"]["cache_bytes"]


def test_every_row_has_its_texts():
    for path, row in rows_in(BOARD).items():
        parts = read_records(path, row)
        assert parts.keys() == {"bare", row["line"]}
        target, number = row["settings"]["lengths"][-1], row["results"]["numbers"]["context"]
        part = next(one for one in parts[row["line"]] if (one["task"], one["length"]) == ("context", target))
        values = [sample["loss"] for sample in part["samples"]]
        assert math.fsum(values) / len(values) == pytest.approx(number[str(target)]["loss"]["value"], rel=1e-5)


METHOD = '''"""A formula."""
from math import pi

# Twice.
class Twice:
    """What it is."""

    name = "two#2"  # a name

    def table(self):
        return 2 * pi
'''


@pytest.mark.parametrize(
    ("before", "after", "is_same"),
    [
        ("A formula", "Another description", True),
        ("# Twice.\n", "", True),
        ("  # a name", "", True),
        ("from math import pi", "from ours import pi", True),
        ("2 * pi", "2 * pi + 1", False),
        ("two#2", "two#3", False),
    ],
)
def test_the_mark_of_a_formula_is_of_what_it_computes(before, after, is_same):
    changed = METHOD.replace(before, after)
    assert changed != METHOD
    assert (code_in(changed) == code_in(METHOD)) is is_same
