"""The report of a search: one page, the same numbers everywhere, words that promise no more than the intervals."""

import json
import math
import re
from dataclasses import replace

import pytest

import ropewalk as rw
from ropewalk.extension.notation import BARE
from ropewalk.measure.metrics.intervals import Estimate
from ropewalk.measure.report.tables import brief
from ropewalk.search.fitting_words import words
from ropewalk.search.report import figures, focus, page_of, pareto, table, write_fit

from search.made_up_fit import BRED, YARN, estimate, fitted, tried


@pytest.fixture
def fit():
    return fitted()


def test_one_paragraph_says_what_over_what_by_how_much_and_how_surely(fit):
    said = words(fit)
    assert "Written: pairs #3, the best of 2 hand-set and 2 proposed extensions on the fitting texts." in said
    assert "the last 128 of 256 tokens have a loss of 2.500 nats" in said
    assert "0.050 [0.040, 0.060] less than yarn" in said
    assert "the 95 % interval excludes 0" in said
    assert "On the fitting texts the margin is 0.100." in said
    assert "The loss on short texts changes by +0.050 [+0.040, +0.060]" in said


@pytest.mark.parametrize(
    ("behind", "said"),
    [
        (
            estimate(0.005),
            "0.005 [-0.005, 0.015] less than yarn, the best hand-set extension on these texts: not enough",
        ),
        (
            estimate(-0.05),
            "Written: yarn, .* 0.050 [0.040, 0.060] less than the search's choice .pairs #3, .*interval excludes 0",
        ),
    ],
)
def test_words_promise_no_more_than_the_interval(fit, behind, said):
    changed = replace(fit, beside=(fit.beside[0], replace(fit.beside[1], behind=behind)))
    assert re.search(said.replace("[", r"\["), words(changed))
    assert ("the 95 % interval excludes 0" in words(changed)) == (behind.high < 0)
    assert words(changed).startswith(f"Written: {changed.written.line}, ")
    assert changed.advised == changed.written.extension


def test_an_extension_is_cut_to_its_width():
    line = rw.parse("yarn:factor=4+log_n", trained_len=4096)
    assert brief(line) == "by_parts:factor=4+yarn_temperature:factor=4+log_n"
    assert [(len(brief(line, width)), brief(line, width)[-3:]) for width in (20, 30)] == [(20, "..."), (30, "...")]


def test_what_is_said_is_said_of_what_is_written(fit):
    """Losses and times of the one that is written, on as many texts as that was judged on."""
    other = replace(fit.beside[1], behind=estimate(-0.05), damage=estimate(0.2), slowdown=3.5)
    said = words(replace(fit, beside=(fit.beside[0], other)))
    assert "On 8 texts that the search did not see, the last 128 of 256 tokens have a loss of 2.550 nats" in said
    assert "The loss on short texts changes by +0.200 [+0.190, +0.210], and a text takes 3.5 times" in said


def test_a_time_that_cannot_be_compared_is_said_and_drawn_as_none(fit, tmp_path):
    """The trials and the base model were measured on two kinds of devices."""
    figures_of = [
        trial._replace(figures=trial.figures and trial.figures._replace(slowdown=math.nan)) for trial in fit.history
    ]
    changed = replace(fit, answer=replace(fit.answer, slowdown=math.nan), history=tuple(figures_of))
    assert "its time cannot be compared: the base model was read on another kind of device" in words(changed)
    write_fit(changed, tmp_path)
    page, numbers = (tmp_path / "report.html").read_text(), json.loads((tmp_path / "results.json").read_text())
    assert not re.search(r"\bnan\b", page)
    assert numbers["judged"][0]["slowdown"] is None
    limited = replace(changed, goal=replace(changed.goal, max_slowdown=9.0))
    assert "exceeds --max-slowdown 9: not known" in words(limited)


def test_a_search_that_was_out_of_time_says_what_it_left_out_and_what_the_budget_was(fit):
    assert "budget" not in words(replace(fit, budget=90.0))
    said = words(replace(fit, budget=90.0, untried=7))
    assert "no time for 7 more hand-set extensions (the budget is 90 s): a longer --budget" in said


def test_nothing_better_than_by_hand(fit):
    same = replace(fit, chosen=fit.history[0], answer=replace(fit.answer, line="yarn", extension=YARN))
    assert "no proposed one is better on the fitting texts" in words(same)


def test_a_search_without_proposals_does_not_say_that_none_is_better(fit):
    alone = replace(
        fit, chosen=fit.history[0], answer=replace(fit.answer, line="yarn", extension=YARN), history=fit.history[:2]
    )
    assert "the best of 2 hand-set and 0 proposed extensions" in words(alone)
    assert "It is a hand-set extension: none was proposed." in words(alone)
    said = words(replace(alone, budget=90.0))
    assert "no time to propose any (the budget is 90 s): take a longer --budget." in said


def test_the_table_begins_with_the_lowest_loss(fit):
    rows = table(fit).rows
    assert [row[0] for row in rows] == ["pairs #3", "yarn", "pi", "base model"]
    assert rows[0][3] == ""
    assert rows[1][3] == "+0.05 [+0.04, +0.06]"
    assert all(len(row[-1]) <= 110 for row in rows)


def test_the_page_needs_nothing_from_elsewhere(fit, tmp_path):
    page = write_fit(fit, tmp_path, command="ropewalk fit <here>").read_text()
    assert page.count("<figure id=") == 4
    assert not re.findall(r'(?:src|href)="https?:', page)
    assert "ropewalk fit &lt;here&gt;" in page
    assert words(fit).split(".")[0] in page
    assert rw.Extension.from_json((tmp_path / "extension.json").read_text()) == BRED
    stored = json.loads((tmp_path / "results.json").read_text())
    assert [each["line"] for each in stored["judged"]] == ["pairs #3", BARE, "yarn", "pi"]
    assert [each["trial"] for each in stored["trials"]] == [0, 1, 2, 3]
    assert stored["trials"][2]["figures"] is None


def test_figures_have_the_numbers_they_show(fit):
    lead, front, history, stretches = figures(fit)
    assert [row[:2] for row in lead.numbers] == [("pairs #3", 0.0), ("yarn", 0.05), ("pi", 0.5), (BARE, 2.5)]
    assert sorted(front.numbers) == [
        (0, "hand_set", 2.5, 0.1, 1.1),
        (1, "hand_set", 2.9, 0.4, 1.1),
        (3, "pairs", 2.4, 0.1, 1.1),
    ]
    dots = {one.name: one for one in front.chart.panels[0].series}
    assert (dots["pairs"].x, dots["pairs"].y, dots["pairs"].sizes) == (
        (2.4,),
        (0.1,),
        (pytest.approx(3.5 + 1.5 * 1.1),),
    )
    stair = dots["no other is better in both"]
    assert (stair.x, stair.y) == ((2.4, front.chart.panels[0].x.high), (0.1, 0.1))
    assert history.numbers == ((0, "hand_set", 2.5), (1, "hand_set", 2.9), (3, "pairs", 2.4))
    assert [value for line, _, value in stretches.numbers if line == "pairs #3"] == pytest.approx([1, 2, 4, 9])


def test_a_reach_has_no_stretches(fit):
    other = replace(fit, answer=replace(fit.answer, extension=rw.parse("rerope:window=8")))
    assert [each.name for each in figures(other)] == ["behind", "front", "history"]


def test_the_front_is_what_nothing_betters():
    places = [(2.0, 0.3), (2.1, 0.1), (2.05, 0.4), (2.5, 0.1), (3.0, 0.0)]
    assert pareto(places) == [(2.0, 0.3), (2.1, 0.1), (3.0, 0.0)]


def test_the_best_that_was_set_by_hand_is_seen_however_much_better_the_rest_is(fit):
    better = tuple(tried(number, "descent", BRED, 2.4 - number / 1000) for number in range(4, 12))
    low, high = focus([trial for trial in (*fit.history, *better) if trial.figures])
    assert low < 2.39 < 2.50 < high < 2.90
    drawn = {each.name: each for each in figures(replace(fit, history=(*fit.history, *better)))}
    legend = {one.name: one.value for one in drawn["front"].chart.legend}
    assert legend["hand_set"] == "2, 1 off the scale"  # pi, with a loss of 2.90


def test_the_title_names_model_extension_corpus_and_texts(fit):
    page = page_of(
        replace(fit, made={"model": "small", "when": "2026-11-22T10:00:00+00:00"}, marks={"corpus": "python"})
    )
    assert page.title == "small under pairs #3, fitted to 256 tokens on 16 texts of python"
    assert page.date == "22 November 2026"


def test_what_is_surely_better_on_unseen_texts_is_what_is_written(fit, tmp_path):
    astray = replace(fit, beside=(fit.beside[0], replace(fit.beside[1], behind=estimate(-0.05))))
    write_fit(astray, tmp_path)
    assert rw.parse(str(tmp_path / "extension.json")) == YARN
    write_fit(fit, tmp_path)
    assert rw.parse(str(tmp_path / "extension.json")) == BRED


@pytest.mark.parametrize(
    ("condition", "broken"),
    [
        ({"max_damage": 0.1}, {"damage": estimate(0.2)}),
        ({"max_slowdown": 1.5}, {"slowdown": 2.0}),
        ({"min_retrieval": 0.5}, {"keys": estimate(0.2)}),
    ],
    ids=["damage", "slowdown", "retrieval"],
)
def test_what_breaks_a_condition_is_never_written(fit, tmp_path, condition, broken):
    """However much better its loss is: a window may read best and find no passkey."""
    keys = estimate(0.9) if "keys" in broken else None
    answer, bare, better = (replace(one, keys=keys) for one in (fit.answer, *fit.beside[:2]))
    better = replace(better, behind=estimate(-0.5))
    asked = replace(fit, goal=replace(fit.goal, **condition), answer=answer, beside=(bare, better))
    assert asked.written.extension == YARN
    astray = replace(asked, beside=(bare, replace(better, **broken)))
    assert astray.rival is None
    write_fit(astray, tmp_path)
    assert rw.parse(str(tmp_path / "extension.json")) == BRED
    assert "the best hand-set extension" not in words(astray)


def test_an_answer_that_was_set_by_hand_stands_once(fit):
    same = replace(fit, chosen=fit.history[0], answer=replace(fit.answer, line="yarn", extension=YARN))
    assert [row[0] for row in table(same).rows].count("yarn") == 1


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_has_no_loss_is_no_rival_and_comes_last(fit, tmp_path, value):
    """First or last among those beside the answer: NaN is below nothing and above nothing."""
    gone = Estimate(value, math.nan, math.nan, 8)
    bare, yarn, pi = fit.beside
    broken = replace(pi, loss=gone, behind=gone)
    for beside in ((bare, broken, yarn), (bare, yarn, broken)):
        changed = replace(fit, beside=beside)
        assert changed.rival is yarn
        assert [row[0] for row in table(changed).rows] == ["pairs #3", "yarn", "base model", "pi"]
        assert write_fit(changed, tmp_path).exists()
        stored = json.loads((tmp_path / "results.json").read_text(), parse_constant=lambda name: pytest.fail(name))
        assert next(one for one in stored["judged"] if one["line"] == "pi")["loss"]["value"] is None


CONDITIONS = pytest.mark.parametrize(
    ("condition", "breaking", "keeping", "said"),
    [
        (
            {"max_damage": 0.005},
            {"damage": estimate(0.035)},
            {"damage": estimate(0.001)},
            "exceeds --max-damage 0.005: +0.035 [+0.025, +0.045]",
        ),
        ({"max_slowdown": 1.5}, {"slowdown": 2.0}, {"slowdown": 1.1}, "exceeds --max-slowdown 1.5: 2.00"),
        (
            {"min_retrieval": 0.5},
            {"keys": estimate(0.2)},
            {"keys": estimate(0.9)},
            "falls below --min-retrieval 0.5: 20%",
        ),
    ],
    ids=["damage", "slowdown", "retrieval"],
)


@CONDITIONS
@pytest.mark.parametrize("behind", [estimate(0.5), estimate(0.005), estimate(-0.5)], ids=["worse", "alike", "better"])
def test_an_answer_that_breaks_a_condition_on_the_test_texts_gives_way(
    fit, tmp_path, condition, breaking, keeping, said, behind
):
    """To the best hand-set extension that keeps to it, however much lower the answer's loss is; and it is said."""
    bare, yarn, pi = fit.beside
    answer, yarn, pi = replace(fit.answer, **breaking), replace(yarn, behind=behind, **keeping), replace(pi, **breaking)
    changed = replace(fit, goal=replace(fit.goal, **condition), answer=answer, beside=(bare, yarn, pi))
    assert changed.written is yarn
    page = write_fit(changed, tmp_path).read_text()
    assert rw.parse(str(tmp_path / "extension.json")) == YARN
    assert words(changed).startswith(
        "Written: yarn, the best hand-set extension on the test texts, among those that keep"
    )
    assert f"The search's choice is not written: on the test texts it {said}." in words(changed)
    assert said in page
    stored = json.loads((tmp_path / "results.json").read_text())
    assert (stored["written"], stored["breaks"]) == ("yarn", [])
    assert [one["breaks"] for one in stored["judged"] if one["line"] in ("pairs #3", "pi")] == [[*condition]] * 2


@CONDITIONS
def test_where_nothing_that_was_tested_keeps_to_the_goal_that_is_said(
    fit, tmp_path, condition, breaking, keeping, said
):
    bare, yarn, pi = fit.beside
    answer, yarn, pi = (replace(one, **breaking) for one in (fit.answer, yarn, pi))
    changed = replace(fit, goal=replace(fit.goal, **condition), answer=answer, beside=(bare, yarn, pi))
    assert changed.written is answer
    told = (
        f"On the test texts it {said}; on the fitting texts it did not, and no other tested extension keeps to the goal"
    )
    assert told in words(changed)
    page = write_fit(changed, tmp_path).read_text()
    assert said in page
    assert "written, breaks the goal" in page
    stored = json.loads((tmp_path / "results.json").read_text())
    assert (stored["written"], stored["breaks"]) == ("pairs #3", [*condition])
    assert said in stored["words"]


@CONDITIONS
def test_an_answer_that_keeps_to_the_goal_is_said_to_break_nothing(fit, condition, breaking, keeping, said):
    bare, yarn, pi = fit.beside
    answer = replace(fit.answer, **keeping)
    changed = replace(fit, goal=replace(fit.goal, **condition), answer=answer, beside=(bare, yarn, pi))
    assert changed.written is answer
    assert "--m" not in words(changed)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_an_answer_without_a_loss_on_the_test_texts_gives_way(fit, value):
    gone = Estimate(value, math.nan, math.nan, 8)
    bare, yarn, pi = (replace(one, behind=gone) for one in fit.beside)
    for beside in ((bare, yarn, pi), (bare, pi, yarn)):
        changed = replace(fit, answer=replace(fit.answer, loss=gone, behind=gone), beside=beside)
        assert changed.written is yarn
        assert "The search's choice (pairs #3) has no finite loss there, and is not written." in words(changed)
