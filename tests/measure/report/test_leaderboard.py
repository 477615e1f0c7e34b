"""The leaderboard's page is written from its numbers alone; its picture names what is on the front, once."""

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from ropewalk.measure.comparison.halving import Dropped, LeftOut
from ropewalk.measure.comparison.race import Costs, FrontColumns, Leaderboard, RankedEntry, Round, losses_of
from ropewalk.measure.comparison.verdict import DEPLOYMENTS
from ropewalk.measure.leaderboard import LeaderboardResult
from ropewalk.measure.metrics.intervals import Estimate, difference
from ropewalk.measure.report.drawing.build import PALE
from ropewalk.measure.report.figures import keys_of
from ropewalk.measure.report.leaderboard import as_json, interval, markdown, write_leaderboard
from ropewalk.measure.report.leaderboard_picture import columns, picture

from measure.latex import read_table
from measure.report.made_up import comparison

FOLDER = Path(__file__).parent / "leaderboard"


@pytest.fixture(scope="module")
def values():
    """What a stranger's `results.json` holds; everything that the page needs is in it."""
    results = json.loads((FOLDER / "results.json").read_text())
    return {**results, **results["leaderboard"]}


def test_the_page_of_fixed_numbers(values):
    assert markdown(values, "leaderboard.svg") == (FOLDER / "leaderboard.md").read_text()
    assert "](leaderboard." not in markdown(values)


def test_a_leaderboard_on_which_nobody_has_a_loss_is_still_written(tmp_path):
    """Nothing to draw and nothing to rank, but the reasons."""
    out = (LeftOut("bare", "NaN loss at 256 tokens"), LeftOut("yarn", "NaN loss at 256 tokens"))
    board = Leaderboard(
        comparison=comparison([]), entries=(), dropped=(), left_out=out, rounds=(Round(3, 2),), planned=(3,)
    )
    assert "NaN loss at 256 tokens" in write_leaderboard(board, tmp_path).read_text()
    assert "| `bare`, `yarn` | NaN loss at 256 tokens |" in (tmp_path / "leaderboard.md").read_text()
    assert "leaderboard.svg" not in (tmp_path / "leaderboard.md").read_text()


def test_a_line_that_is_made_for_tuning_says_so(values):
    tuned = [{**entry, "needs": "tuning"} for entry in values["entries"]]
    assert "| `yarn` (made for tuning) |" in markdown({**values, "entries": tuned})


def test_when_time_was_up_it_says_so(values):
    short = markdown({**values, "rounds": values["rounds"][:2]})
    assert "Time was up after round 2 of 3; the same command continues." in short
    assert "5 lines read 8 texts" in short
    assert "Time was up" not in markdown(values)


def test_the_page_says_of_how_many_projects_the_texts_are(values):
    assert "5 lines read 24 texts of 3 projects of `stdlib`" in markdown({**values, "projects": ["a", "b", "c"] * 8})
    assert "5 lines read 24 texts of `stdlib`" in markdown(values)


def test_what_was_not_measured_is_a_dash():
    assert interval(None) == "-"
    assert interval({"value": 0.5, "low": None, "high": None}) == "+0.500 [?, ?]"
    open_ends = {"value": 0.5, "low": None, "high": None}
    assert interval({**open_ends, "of": 1}) == "+0.500 [one text]"
    assert interval({**open_ends, "of": 24}) == "+0.500 [too few projects]"


# From a comparison to files.

NAMES = [f"line_{number}" for number in range(12)]


def made(front=12, rates=None):
    """Twelve lines whose losses are a thousandth of a nat apart: their names would overlap."""
    both = comparison(NAMES, rates=rates or [0.001 * n for n in range(12)])
    best = losses_of(both.candidates[1], both)
    entries = []
    for number, one in enumerate([*both.candidates[1:], both.candidates[0]]):
        losses, where = losses_of(one, both), DEPLOYMENTS[number % 3]
        entries.append(
            RankedEntry(
                candidate=one,
                costs=Costs("nothing", where, 1.0 - number / 20),
                columns=FrontColumns(one.line, sum(losses) / 3, number / 12, 0.01 * number, 1.0, 2**20 + number, where),
                losses=losses,
                behind=difference(losses, best),
                right=Estimate(number / 12, 0.0, 1.0, 12),
                harm=Estimate(0.01 * number, 0.0, 0.2, 4),
                beaten_by="" if number < front else NAMES[0],
            )
        )
    return Leaderboard(
        comparison=both,
        entries=tuple(entries),
        dropped=(Dropped("pi", 1, 3, 4.0, "line_0", Estimate(2.0, 1.5, 2.5, 3), 0.05),),
        left_out=(LeftOut("alibi", "the model must be trained with it from the start"),),
        rounds=(Round(3, 13),),
        planned=(3,),
    )


def panels(board):
    return picture(board, keys_of(board.comparison)).chart.panels


def test_only_the_front_is_named_and_everything_is_drawn():
    """The names stand once beside all panels, the lowest loss first, with their losses."""
    board = made(front=3)
    chart = picture(board, keys_of(board.comparison)).chart
    assert [one.name for one in chart.legend] == NAMES[:3]
    assert [one.value for one in chart.legend] == [f"{entry.columns.loss:.3f}" for entry in board.entries[:3]]
    assert len(chart.panels) == 5
    for panel in chart.panels:
        assert [one.alpha for one in panel.series] == [1.0] * 3 + [PALE] * 10
        assert [one.words[0].endswith(", behind line_0") for one in panel.series] == [False] * 3 + [True] * 10
    assert {panel.y for panel in chart.panels} == {chart.panels[0].y}


def test_dots_are_where_their_numbers_are():
    board = made()
    found, harm, pairs, time, cache = panels(board)
    for entry, *dots in zip(board.entries[:12], *(panel.series for panel in (found, harm, pairs, cache)), strict=False):
        assert [dot.y for dot in dots] == [(entry.columns.loss,)] * 4
        numbers = (100 * entry.columns.right, entry.columns.harm, 100.0, entry.columns.cache_bytes / 2**20)
        assert [dot.x[0] for dot in dots] == [pytest.approx(number) for number in numbers]
        assert {dot.marker for dot in dots} == {{"static": 1, "plugin": 0, "here": 3}[entry.costs.deployment]}
    assert (cache.x.kind, time.x.kind) == ("log", "even")


def test_a_loss_beyond_the_scale_is_a_triangle_at_its_edge():
    """The base model is two nats above the best."""
    for panel in panels(made()):
        *_, base = panel.series
        assert base.marker == 2
        assert base.y == (panel.y.high,)
        assert panel.y.high < 3


def test_panels_of_what_was_not_measured_are_left_out():
    bare = [replace(entry, right=None, harm=None) for entry in made().entries]
    assert [panel.heading for panel in columns(bare)] == ["pairs, %", "time, relative", "cache, MiB"]


def test_its_table_for_a_paper():
    board = LeaderboardResult(made().comparison, made())
    assert read_table(board.to_latex())[1:] == ("lrrrrrrrrl", [board.table.head, *board.table.rows])
    assert rf"\texttt{{{NAMES[3].replace('_', chr(92) + '_')}}} & " in board.to_latex()


@pytest.mark.nightly
def test_files(tmp_path):
    board = made()
    page = write_leaderboard(board, tmp_path, command="ropewalk compare --all", pictures="svg")
    stored = json.loads((tmp_path / "leaderboard.json").read_text())
    results = json.loads((tmp_path / "results.json").read_text())
    assert stored == {**{key: results[key] for key in stored if key in results}, **results["leaderboard"]}
    assert (tmp_path / "leaderboard.md").read_text() == markdown(stored, "leaderboard.svg")
    assert json.loads(json.dumps(as_json(board, "ropewalk compare --all"))) == stored
    shown = page.read_text()
    assert "Not in the leaderboard" in shown
    assert "dropped in round 1" in shown
    ElementTree.parse(tmp_path / "leaderboard.svg")
    assert (tmp_path / "leaderboard.csv").read_text().count("\n") == 14
    assert "](leaderboard.svg)" in (tmp_path / "leaderboard.md").read_text()
