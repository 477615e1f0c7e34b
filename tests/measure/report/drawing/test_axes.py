"""Axes: numbers keep their order, ticks are round numbers within them."""

import math

import pytest
from hypothesis import given, strategies as st

from ropewalk.measure.report.drawing.axes import Axis, Tick, legible, length_ticks, short, signed, spanning, ticks

KINDS = ("even", "log", "signed log")
sizes = st.floats(min_value=1e-3, max_value=1e6)


@given(st.sampled_from(KINDS), st.lists(sizes, min_size=2, max_size=9, unique=True), st.booleans())
def test_order_is_kept_and_the_ends_are_the_ends(kind, values, upwards):
    start, end = (300.0, 20.0) if upwards else (20.0, 300.0)
    axis = Axis(min(values), max(values), start, end, kind)
    assert (axis.at(axis.low), axis.at(axis.high)) == pytest.approx((start, end))
    places = [axis.at(value) for value in sorted(values)]
    assert places == sorted(places, reverse=upwards)


@given(st.sampled_from(KINDS), st.lists(st.floats(-1e5, 1e5), min_size=1, max_size=9))
def test_an_axis_has_room_for_its_numbers_and_few_ticks_within_it(kind, values):
    values = [abs(value) + 0.01 for value in values] if kind == "log" else values
    axis = spanning(values, 0, 400, kind)
    assert all(axis.beyond(value) == 0 for value in values)
    marks = ticks(axis)
    assert 1 <= len(marks) <= 14
    assert all(axis.beyond(tick.value) == 0 for tick in marks)
    assert len({tick.label for tick in marks}) == len(marks)


def test_ticks_are_round():
    assert [tick.label for tick in ticks(Axis(-5.2, 0.7, 300, 0))] == ["−5", "−4", "−3", "−2", "−1", "0"]
    assert [tick.label for tick in ticks(Axis(-0.13, 0.11, 0, 1))] == ["−0.10", "−0.05", "0.00", "0.05", "0.10"]
    assert [tick.label for tick in length_ticks(Axis(0, 4096, 0, 500))] == ["0", "1k", "2k", "3k", "4k"]
    assert [tick.label for tick in length_ticks(Axis(1, 1024, 0, 500, "log"))] == ["1", "4", "16", "64", "256", "1k"]


def test_what_is_not_a_number_has_no_place_and_infinity_is_far_beyond():
    axis = Axis(0, 1, 0, 100)
    assert math.isnan(axis.at(math.nan))
    assert (axis.beyond(math.inf), axis.beyond(-math.inf), axis.beyond(math.nan)) == (1, -1, 0)
    assert abs(axis.at(math.inf)) < 1e5  # a file has no infinity
    assert spanning([math.nan, math.inf, 1.0, 3.0], 0, 100).high < 4
    assert spanning([], 0, 100).high > spanning([], 0, 100).low


def test_ticks_that_would_touch_are_left_out():
    marks = [Tick(0, "0"), Tick(10, "10"), Tick(50, "50")]
    assert [tick.label for tick in legible(marks, Axis(0, 100, 0, 100), 40)] == ["0", "50"]


@pytest.mark.parametrize(("length", "words"), [(512, "512"), (2048, "2k"), (2**20, "1m"), (0, "0"), (12_345, "12,345")])
def test_lengths_are_short(length, words):
    assert short(length) == words


def test_nothing_has_no_sign():
    assert [signed(value) for value in (-0.001, 0.0, 0.126, -2.0)] == ["0.00", "0.00", "+0.13", "−2.00"]
