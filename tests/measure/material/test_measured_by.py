"""The name of a number has the code that computes it: a change there measures anew, a change of a report does not."""

import shutil

import pytest

import ropewalk as rw
from ropewalk.measure.comparison import runner, runner as cells
from ropewalk.measure.comparison.comparison import measure_candidates
from ropewalk.measure.comparison.runner import Cell
from ropewalk.measure.comparison.store import Store
from ropewalk.measure.material import measured_by as module
from ropewalk.measure.material.measured_by import COMPUTING, NO_NUMBERS, PACKAGE, code_marks, sources_of
from ropewalk.measure.tasks import Context

from architecture.tree import FILES, imports, module_of
from measure.subjects import subject

PARTS = sorted(path.name for path in PACKAGE.iterdir() if any(path.glob("*.py")))
EXPORTS = ("ropewalk.engines.check", "ropewalk.engines.export", "ropewalk.engines.rules", "ropewalk.engines.vllm.plans")
# What shows or asks for numbers, and does not compute them.
SHOWING = (
    *(
        "ropewalk.measure.compare",
        "ropewalk.measure.leaderboard",
        "ropewalk.measure.diagnose",
        "ropewalk.measure.lines",
        "ropewalk.measure.redo",
    ),
    *("ropewalk.measure.result", "ropewalk.measure.report", "ropewalk.search.fit", "ropewalk.search.report"),
)


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """A copy of the sources, to be changed."""
    place = tmp_path_factory.mktemp("copy") / "ropewalk"
    shutil.copytree(PACKAGE, place, ignore=shutil.ignore_patterns("__pycache__", "*.safetensors"))
    return place


@pytest.mark.sampled(cases=5)
@pytest.mark.parametrize("part", PARTS)
def test_a_change_is_noticed_in_every_part_that_computes_and_in_no_other(package, part):
    before = sources_of(package, without=NO_NUMBERS)
    path = next(
        path for path in sorted((package / part).rglob("*.py")) if path.name != "__init__.py" or part == "models"
    )
    text = path.read_text()
    path.write_text(text + "\nCHANGED = 1\n")
    try:
        assert (sources_of(package, without=NO_NUMBERS) != before) == (part not in NO_NUMBERS)
        assert sources_of(package) != sources_of(PACKAGE)  # `made.sources` has everything
    finally:
        path.write_text(text)
    assert sources_of(package, without=NO_NUMBERS) == before


def test_a_file_that_comes_goes_or_moves_is_a_change(package):
    before = sources_of(package, without=NO_NUMBERS)
    old, new = package / "methods" / "frequencies" / "abf.py", package / "methods" / "frequencies" / "abf2.py"
    old.rename(new)
    moved = sources_of(package, without=NO_NUMBERS)
    text = new.read_text()
    new.unlink()
    gone = sources_of(package, without=NO_NUMBERS)
    old.write_text(text)
    assert len({before, moved, gone}) == 3
    assert sources_of(package, without=NO_NUMBERS) == before


def test_nothing_that_measures_imports_what_is_left_out():
    """Else a change there could change a number. Exports and checks of engines write files; the rest is constants."""
    by_module = {module_of(path): path for path in FILES}
    reached, ahead = set(), [name for name in by_module if computes(name)]
    while ahead:
        name = ahead.pop()
        if name not in reached and not name.startswith(EXPORTS):
            reached.add(name)
            ahead += [other for other in imports(by_module[name]) if other in by_module and other != "ropewalk"]
    assert len(reached) > 200
    left_out = tuple(f"ropewalk.{part.replace('/', '.')}" for part in NO_NUMBERS)
    assert [name for name in sorted(reached) if name.startswith(left_out)] == []


def computes(name):
    return name.startswith(("ropewalk.measure", "ropewalk.search")) and not name.startswith(SHOWING)


@pytest.mark.parametrize("changed", ["sources", *COMPUTING])
def test_other_code_or_another_version_is_another_name(tmp_path, monkeypatch, changed):
    who, cell = subject(tmp_path), Cell(rw.Extension(), Context(samples=2), 32, 0)
    before = cell.key(who.marks_at(0))
    assert changed in code_marks()
    monkeypatch.setattr(cells, "code_marks", lambda: {**code_marks(), changed: "another"})
    assert cell.key(who.marks_at(0)) != before


def test_a_build_is_no_other_version(monkeypatch):
    """A store may move from a machine with a GPU to one without."""
    monkeypatch.setattr(module, "version", lambda name: "2.10.0+cu130")
    assert module._public("torch") == "2.10.0"


def test_changed_code_measures_anew_in_a_folder_that_has_numbers(tmp_path, monkeypatch):
    """And the same code measures nothing again."""
    who, seen, measured = subject(tmp_path), [], runner.result_of
    monkeypatch.setattr(runner, "result_of", lambda subject, cell: seen.append(cell) or measured(subject, cell))

    def run():
        return measure_candidates(who, ["yarn"], [64], Store(tmp_path / "cells"), tasks=[Context(samples=2)])

    run()
    first = len(seen)
    run()
    assert len(seen) == first
    monkeypatch.setattr(cells, "code_marks", lambda: {**code_marks(), "sources": "changed"})
    run()
    assert len(seen) == 2 * first
