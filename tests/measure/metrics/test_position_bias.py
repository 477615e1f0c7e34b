"""Position bias, worked by hand."""

import math
from random import Random

import pytest

from ropewalk.errors import InvalidValue
from ropewalk.measure.metrics.correlation import band_of, position_bias
from ropewalk.measure.metrics.intervals import Estimate, mean, minus

SAMPLES = [
    {"depth": depth, "loss": loss} for depth, loss in ((0.0, 2.0), (0.1, 4.0), (0.5, 9.0), (0.9, 1.0), (1.0, 2.0))
]


def test_by_hand():
    """Bands 0, 2 and 4 have 3, 9 and 1.5: the middle is 9 - (3 + 1.5) / 2 above both ends."""
    bias = position_bias(SAMPLES)
    assert {band: loss.value for band, loss in bias.bands.items()} == {0: 3.0, 2: 9.0, 4: 1.5}
    assert bias.bands[0] == mean([2.0, 4.0], least=0.0)
    assert bias.middle.value == pytest.approx(6.75)
    assert bias.far.value == pytest.approx(1.5)
    assert (bias.middle.of, bias.far.of) == (5, 4)


def test_a_band_is_a_fifth_and_the_end_belongs_to_the_last():
    assert [band_of(depth) for depth in (0.0, 0.19, 0.2, 0.5, 0.79, 0.8, 1.0)] == [0, 0, 1, 2, 3, 4, 4]


def test_what_was_not_measured_is_not_made_up():
    only_ends = position_bias([SAMPLES[0], SAMPLES[-1]])
    assert only_ends.middle is None
    assert only_ends.far.value == 0.0
    assert (only_ends.far.low, only_ends.far.high) == (-math.inf, math.inf)  # one sample in each band
    assert position_bias(SAMPLES[2:3]).far is None
    assert position_bias(SAMPLES[2:3]).to_json() == {
        "bands": [{"from": 0.4, "to": 0.6, "value": 9.0, "low": 0.0, "high": None, "of": 1}],
        "middle": None,
        "far": None,
    }


def test_differences_of_independent_estimates_by_the_formula():
    """Arms of 3 and 4 to the low side, of 6 and 8 to the high side."""
    got = minus(Estimate(10.0, 7.0, 16.0, 5), Estimate(2.0, -6.0, 6.0, 7))
    assert got == (8.0, 8.0 - 5.0, 8.0 + 10.0, 12)


def test_nineteen_of_twenty_intervals_hold_the_truth():
    """The middle is 1 nat harder than both ends, the beginning half a nat harder than the end."""
    held = {"middle": 0, "far": 0}
    for seed in range(200):
        random = Random(seed)
        true = {0.1: 2.25, 0.5: 3.0, 0.9: 1.75}
        samples = [{"depth": d, "loss": random.gauss(loss, 0.5)} for d, loss in true.items() for _ in range(12)]
        bias = position_bias(samples)
        held["middle"] += bias.middle.low <= 1.0 <= bias.middle.high
        held["far"] += bias.far.low <= 0.5 <= bias.far.high
    assert all(0.88 <= count / 200 <= 0.99 for count in held.values())


@pytest.mark.parametrize("depth", [-0.1, 1.1, math.nan])
def test_a_depth_outside_of_the_text_is_refused(depth):
    with pytest.raises(InvalidValue, match="depth must be from 0 to 1"):
        position_bias([{"depth": depth, "loss": 1.0}])
