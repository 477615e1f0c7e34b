"""What a search has time for: its length, its texts, and the test of its answer."""

import dataclasses

import pytest
from hypothesis import given, strategies as st

from ropewalk.measure.comparison.plan import Cost
from ropewalk.search.pace import ENOUGH_EXTENSIONS, FAIR, QUICK, USUAL, SearchCost, TextCounts, plan_search

SMOLLM2 = Cost(134_515_008, ((2.0 * 9 * 128, None),) * 30)


def cost(rate, trained_len=8192, **given):
    given = {"lengths": (), "workers": 1, "elsewhere": True, **given}
    return SearchCost(dataclasses.replace(SMOLLM2, rate=rate), trained_len, **given)


def test_all_that_is_usual_where_there_is_time():
    plan = plan_search(cost(1e18), USUAL, 1200, None, None, None)
    assert (plan.target_len, plan.texts) == (8 * 8192, TextCounts(16, 24, None))
    assert plan_search(cost(1e18), QUICK, 90, None, None, None)[:2] == (4 * 8192, TextCounts(3, 3, 3))


@pytest.mark.parametrize(("hours", "judges"), [(4, 3), (8, FAIR)])
def test_a_real_model_on_two_cores_is_a_matter_of_hours(hours, judges):
    """At 1e11 operations a second, where a text of 16,384 tokens takes two minutes."""
    plan = plan_search(cost(1e11), USUAL, hours * 3600, None, None, None)
    assert plan.target_len >= 2 * 8192
    assert plan.extensions >= ENOUGH_EXTENSIONS
    assert plan.texts.judges >= judges
    assert plan.test < hours * 3600 / 2


def test_the_times_are_those_of_the_texts_that_are_read():
    """Counted text by text: two rungs of 1 and 3 texts, of which a third of all extensions reads the second."""
    on = cost(1e12, lengths=(10_000,), elsewhere=True)
    text = on.of_model.seconds(10_000) + on.of_model.seconds(16_384)
    short = on.of_model.seconds(8192)
    plan = on.plan(16_384, TextCounts(3, 4, 2), 3600)
    base, others = 4 * (text + short), 4 * (text + short) * 1.3 * 3  # the answer and two set by hand
    elsewhere = 3 * 4 * text
    assert plan.text == pytest.approx(text)
    assert plan.test == pytest.approx(base + others + elsewhere)
    left = 3600 - plan.test - 3 * (text + short)
    assert plan.extensions == pytest.approx(left / (1.3 * text * (1 + 2 / 3)))


def test_what_was_asked_for_is_never_changed():
    plan = plan_search(cost(1e9), USUAL, 60, 65_536, 5, 7)
    assert (plan.target_len, plan.texts[:2]) == (65_536, (5, 7))
    assert plan.extensions == 0


def test_the_least_where_there_is_time_for_nothing():
    plan = plan_search(cost(1e9), USUAL, 60, None, None, None)
    assert (plan.target_len, plan.texts) == (2 * 8192, TextCounts(2, 2, 1))


def test_more_processes_try_more():
    one, four = (plan_search(cost(1e12, workers=count), USUAL, 7200, 16_384, 6, 8) for count in (1, 4))
    assert four.extensions > 3 * one.extensions
    assert four.test < one.test


@given(rate=st.floats(1e8, 1e16), seconds=st.floats(1, 1e6), more=st.floats(1, 100))
def test_more_time_never_leaves_more_out(rate, seconds, more):
    less, longer = (plan_search(cost(rate), USUAL, time, None, None, None) for time in (seconds, seconds * more))
    assert longer.target_len >= less.target_len
    if longer.target_len == less.target_len:
        assert longer.texts[:2] >= less.texts[:2]
