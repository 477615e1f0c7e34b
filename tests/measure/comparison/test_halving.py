"""Halving: what is surely behind stops, what may be chance goes on."""

import math

import pytest
from hypothesis import given, strategies as st

from ropewalk.measure.comparison.halving import MAX_GAP, Standing, hopeless, rounds

# Texts differ by nats; what a line does to them differs by hundredths.
TEXTS = (1.2, 3.1, 2.2, 4.0, 1.7, 2.9, 3.5, 2.0)


def line(name, shifts, *rivals, texts=TEXTS):
    return Standing(name, tuple(text + shift for text, shift in zip(texts, shifts, strict=True)), rivals)


@pytest.mark.parametrize(
    ("texts", "least", "expected"),
    [(16, 1, [2, 5, 16]), (24, 4, [4, 8, 24]), (2, 1, [1, 2]), (3, 4, [3]), (1, 1, [1]), (12, 4, [4, 12])],
)
def test_texts_of_the_rounds(texts, least, expected):
    assert rounds(texts, least) == expected


def test_what_is_surely_behind_is_dropped_and_said():
    """Its texts are 0.2 to 0.3 worse, one by one, while texts differ by 2.8 nats among themselves."""
    shifts = (0.2, 0.3, 0.2, 0.3, 0.2, 0.3, 0.2, 0.3)
    (dropped,) = hopeless([line("good", (0,) * 8), line("bad", shifts, "good")], 2)
    assert (dropped.line, dropped.rival, dropped.round, dropped.texts) == ("bad", "good", 2, 8)
    assert dropped.loss == pytest.approx(20.6 / 8 + 0.25)
    assert dropped.behind.value == pytest.approx(0.25)
    half = 2.365 * math.sqrt(8 * 0.05**2 / 7) / math.sqrt(8)  # Student's interval of eight texts
    assert dropped.behind.low == pytest.approx(0.25 - half, abs=1e-6)
    assert dropped.threshold == 0.05


def test_chance_drops_nothing():
    """The same mean, 0.25 behind, of texts that do not agree."""
    shifts = (2.0, -1.5, 1.0, -0.5, 1.5, -1.0, 0.75, -0.25)
    assert sum(shifts) / 8 == 0.25
    assert hopeless([line("good", (0,) * 8), line("noisy", shifts, "good")], 1) == []


@pytest.mark.parametrize(("gap", "is_dropped"), [(0.06, True), (0.04, False)])
def test_a_small_gap_is_no_reason_however_sure(gap, is_dropped):
    assert bool(hopeless([line("good", (0,) * 8), line("near", (gap,) * 8, "good")], 1)) == is_dropped


def test_two_texts_drop_only_what_is_far_off():
    """Student's factor of two texts is 12.7: half the interval is 12.7 * 0.05 = 0.635."""
    for gap, is_dropped in ((0.6, False), (0.8, True)):
        both = [line("good", (0, 0), texts=TEXTS[:2]), line("bad", (gap - 0.05, gap + 0.05), "good", texts=TEXTS[:2])]
        assert bool(hopeless(both, 1)) == is_dropped


def test_the_best_of_the_rivals_counts_and_no_other_line():
    lines = [
        line("best", (-1.0,) * 8),  # no rival of the others: it needs a larger cache, for example
        line("good", (0,) * 8),
        line("fair", (0.04,) * 8, "good"),
        line("bad", (0.08,) * 8, "fair", "good"),
    ]
    assert [(drop.line, drop.rival) for drop in hopeless(lines, 1)] == [("bad", "good")]


def test_what_could_not_be_measured_is_neither_dropped_nor_a_rival():
    assert hopeless([Standing("gone", (), ("good",)), line("good", (0,) * 8, "gone")], 1) == []


@given(st.lists(st.floats(-3, 3), min_size=2, max_size=24), st.floats(0, 5))
def test_nothing_within_the_gap_by_its_mean_is_ever_dropped(shifts, spread):
    texts = [2 + spread * number for number in range(len(shifts))]
    found = hopeless([line("good", (0,) * len(shifts), texts=texts), line("other", shifts, "good", texts=texts)], 1)
    assert not found or sum(shifts) / len(shifts) > MAX_GAP


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("place", [0, 7])
def test_a_loss_that_is_no_number_protects_nobody(value, place):
    """One text of many is enough to make a line no rival; it is not dropped either, but left out with its reason."""
    shifts = [0.0] * 8
    shifts[place] = value
    broken, good, bad = (
        line("broken", shifts, "good", "bad"),
        line("good", (0,) * 8, "broken"),
        line("bad", (1,) * 8, "broken", "good"),
    )
    for order in ([broken, good, bad], [bad, good, broken]):
        assert [(drop.line, drop.rival) for drop in hopeless(order, 1)] == [("bad", "good")]
