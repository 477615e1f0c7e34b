"""Charts from numbers: their order, their axes, what does not set a scale, and where it leaves it."""

import json
import math

import pytest
from hypothesis import given, strategies as st

from ropewalk.measure.metrics.intervals import Estimate
from ropewalk.measure.report.drawing.build import (
    PALE,
    IntervalRow,
    axis_across,
    interval_chart,
    map_panel,
    scatter,
    spanning,
    written,
)
from ropewalk.measure.report.drawing.charts import Axis, Series

from measure.report.drawing.made_up_lines import CALM, WILD, X, lines

KINDS = ("even", "log", "signed log")


def by_name(chart):
    return {one.name: one for panel in chart.panels for one in panel.series}


@given(st.sampled_from(KINDS), st.lists(st.floats(-1e5, 1e5), min_size=1, max_size=9))
def test_an_axis_has_room_for_its_numbers_and_round_numbers_within_it(kind, values):
    values = [abs(value) + 0.01 for value in values] if kind == "log" else values
    axis = spanning("", values, kind)
    assert all(axis.beyond(value) == 0 for value in values)
    assert all(axis.beyond(value) == 0 for value in axis.at)
    assert list(axis.at) == sorted(set(axis.at))


def test_what_is_no_number_sets_no_scale():
    assert spanning("", [math.nan, math.inf, 1.0, 3.0]).high < 4
    assert spanning("", []).high > spanning("", []).low
    axis = Axis("", 0, 1)
    assert (axis.beyond(math.inf), axis.beyond(-math.inf), axis.beyond(math.nan)) == (1, -1, 0)


def test_axes_that_are_not_even_have_round_numbers():
    assert spanning("", [2.1, 3.9], "log").at == (2, 3)
    assert spanning("", [-2.0, 6.0], "signed log").at == (-1, -0.3, -0.1, 0, 0.1, 0.3, 1, 3)


def test_positions_begin_at_0_and_distances_on_powers_of_2():
    assert axis_across("", [5.0, 900.0], to=1024) == Axis("", 0, 1024, tokens=True)
    assert axis_across("", [1.0, 40.0], log=True) == Axis("", 1, 40, "log", (1, 2, 4, 8, 16, 32), tokens=True)
    assert axis_across("", [0.0, 3.0], tokens=False) == Axis("", 0, 3, whole=True)


def test_measured_lengths_are_a_logarithmic_axis_with_their_numbers():
    (panel,) = lines(Series("a", 0, (64.0, 256.0), (1.0, 2.0)), at=(64, 128, 256), to=None).panels
    assert (panel.x.kind, panel.x.at, panel.x.tokens) == ("log", (64, 128, 256), True)
    assert panel.x.low < 64 < 256 < panel.x.high


def test_the_page_has_the_numbers_in_the_order_of_the_last_ones():
    """Six digits of each; with their intervals, their style and the trained length."""
    stored = json.loads(json.dumps(lines(CALM, WILD).to_json(), allow_nan=False))
    wild, calm = stored["panels"][0]["series"]
    assert (wild["name"], calm["name"]) == ("wild", "calm")
    for name in ("x", "y", "low", "high"):
        assert calm[name] == pytest.approx(getattr(CALM, name), rel=1e-5)
    assert (calm["colour"], calm.get("dash"), calm["marker"]) == ("c0", None, 0)
    assert (wild["colour"], wild["dash"], wild["marker"]) == ("c1", [7, 3], 1)
    assert stored["panels"][0]["marks"] == [[512, "trained length"]]
    assert (stored["kind"], stored["digits"], stored["signed"]) == ("lines", 2, True)


@pytest.mark.parametrize(("bands", "many"), [(0, False), (2, False), (3, True)])
def test_more_bands_than_two_are_too_many_to_be_shown_at_once(bands, many):
    """Lines without a band do not count."""
    drawn = [CALM._replace(name=f"calm {key}", key=key) for key in range(bands)]
    drawn += [WILD._replace(name=f"wild {key}", key=key) for key in range(bands, 5)]
    assert lines(*drawn).to_json()["many"] is many


def test_what_breaks_does_not_set_the_scale_but_ends_at_its_edge_with_a_mark():
    chart = lines(CALM, WILD)
    (panel,) = chart.panels
    assert panel.y.high < 0.1
    wild, calm = by_name(chart)["wild"], by_name(chart)["calm"]
    assert calm.cut is None
    assert wild.cut == (pytest.approx(panel.y.high / 0.01), 1)  # it rises by a hundredth each token
    assert (wild.value, calm.value) == ("▲ +10.24", "0.00")


def test_where_a_line_leaves_a_logarithmic_axis_across():
    """From 0 to 1 between 64 and 256 tokens: half of that at 128."""
    steady, steep = (Series(name, 0, (64.0, 256.0), y) for name, y in (("a", (0.0, 0.5 / 1.08)), ("b", (0.0, 1.0))))
    chart = lines(steady, steep._replace(broken=True), at=(64, 256), signed=True)
    (panel,) = chart.panels
    share = panel.y.high / 1.0
    assert by_name(chart)["b"].cut == (pytest.approx(64 * 4**share), 1)
    assert by_name(chart)["a"].cut is None


def test_a_logarithmic_axis_across_has_no_0():
    by_distance = Series("a", 0, (0.0, 1.0, 512.0), (1.0, 0.5, 0.1), (0.9, 0.4, 0.0), (1.1, 0.6, 0.2))
    placed = by_name(lines(by_distance, across_log=True))["a"]
    assert (placed.x, placed.y, placed.low, placed.high) == ((1, 512), (0.5, 0.1), (0.4, 0.0), (0.6, 0.2))


def test_the_logarithmic_scale_has_room_for_what_breaks():
    (panel,) = lines(CALM, WILD, log="signed log").panels
    assert panel.log.beyond(10.24) == 0
    assert panel.log.kind == "signed log"
    assert lines(CALM).panels[0].log is None


def test_where_all_break_they_set_the_scale():
    assert by_name(lines(WILD))["wild"].cut is None


def test_missing_and_infinite_numbers_have_gaps_and_marks():
    gap = Series("gap", 0, X, tuple(math.nan if 4 < n < 8 else 0.1 for n in range(len(X))))
    none = Series("none", 1, X, (math.nan,) * len(X))
    infinite = Series("infinite", 2, X, tuple(math.inf if n > 8 else 0.05 for n in range(len(X))))
    chart = lines(gap, none, infinite)
    assert [(one.name, one.value) for one in chart.legend] == [("infinite", "▲ ∞"), ("gap", "+0.10"), ("none", "-")]
    (panel,) = json.loads(json.dumps(chart.to_json(), allow_nan=False))["panels"]
    stored = {one["name"]: one for one in panel["series"]}
    assert [n for n, y in enumerate(stored["gap"]["y"]) if y is None] == [5, 6, 7]
    assert stored["infinite"]["cut"] == [X[8], 1]  # the last place where it has a number


def test_a_chart_from_0_begins_there():
    assert lines(CALM._replace(y=tuple(1 + y for y in CALM.y)), from_zero=True, signed=False).panels[0].y.low == 0


ROWS = (
    IntervalRow("good", 0, Estimate(-0.1, -0.2, -0.05, 8), "better"),
    IntervalRow("bad", 1, Estimate(0.1, 0.0, 0.2, 8)),
    IntervalRow("broken", 2, Estimate(4.0, 3.0, 5.0, 8), broken=True),
    IntervalRow("lost", 3, Estimate(math.nan, math.nan, math.nan, 0)),
    IntervalRow("one text", 4, Estimate(0.05, -math.inf, math.inf, 1)),
)


def test_intervals_are_the_numbers_and_a_broken_row_is_at_the_edge():
    chart = interval_chart(ROWS, across="change", zero="base", limit=(0.15, "breaks"))
    (panel,) = chart.panels
    rows = by_name(chart)
    assert [(one.x, one.y, one.low, one.high) for one in panel.series[:2]] == [
        ((-0.1,), (0,), (-0.2,), (-0.05,)),
        ((0.1,), (1,), (0.0,), (0.2,)),
    ]
    assert (panel.x.low < -0.2, panel.x.high) == (True, pytest.approx(0.2 + 0.075 * 0.4))
    assert [one.cut for one in panel.series] == [None, None, (2, 1), None, None]
    words = ["−0.10 [−0.20, −0.05]", "+0.10 [0.00, +0.20]", "+4.00 [+3.00, +5.00]", "no number", "+0.05"]
    assert [one.value for one in panel.series] == words
    assert [bool(one.low) for one in panel.series] == [True, True, False, False, False]
    assert (rows["good"].note, panel.marks) == ("better", ((0, "base"), (0.15, "breaks")))
    assert interval_chart(ROWS, across="", zero="base", limit=(9.0, "breaks")).panels[0].marks == ((0, "base"),)


def test_one_wide_interval_does_not_hide_the_rest():
    wide = (*ROWS[:2], IntervalRow("two texts", 5, Estimate(0.0, -30.0, 30.0, 2)))
    (panel,) = interval_chart(wide, across="change", zero="base").panels
    assert panel.x.high < 1
    assert panel.series[-1].high == (panel.x.high,)


def test_dots_off_the_scale_are_pale_at_its_edge():
    dots = Series("g", 0, (1.0, 2.0, 9.0), (0.2, 0.1, 0.15), words=("one", "two", "far"), sizes=(4.0, 5.0, 6.0))
    inside, off = scatter(dots, Axis("", 0.5, 3.0), Axis("", 0.0, 0.3))
    assert (inside.x, inside.y, inside.words, inside.sizes) == ((1, 2), (0.2, 0.1), ("one", "two"), (4, 5))
    assert (off.x, off.y, off.words, off.alpha, off.name) == ((3.0,), (0.15,), ("far",), PALE, "")
    assert len(scatter(dots, Axis("", 0, 10), Axis("", 0, 1))) == 1


@pytest.mark.parametrize(("kind", "edges"), [("even", (0, 4.5, 40, 64)), ("log", (1, 4, 32, 64))])
def test_columns_of_a_map_meet_half_way(kind, edges):
    axis = Axis("", edges[0], 64, kind)
    places = (1.0, 8.0, 72.0) if kind == "even" else (1.0, 16.0, 64.0)
    panel = map_panel("a", 0, axis, places, [(0.0, 0.5, 1.0)])
    expected = edges if kind == "log" else (0, 4.5, 36, 64)
    assert panel.edges == pytest.approx(expected)
    assert panel.cells == ((0.0, 0.5, 1.0),)


def test_nothing_has_no_sign():
    words = [written(value, 2, signed=True) for value in (-0.001, 0.0, 0.126, -2.0)]
    assert words == ["0.00", "0.00", "+0.13", "−2.00"]
    assert written(-1.5, 1, signed=False) == "−1.5"
