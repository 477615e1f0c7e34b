"""Rank correlation, against scipy and by hand."""

import math
from random import Random

import pytest
from scipy.stats import rankdata, spearmanr

from ropewalk.errors import InvalidValue
from ropewalk.measure.metrics.correlation import correlation_lead, rank_correlation, ranks, spearman


def test_by_hand():
    """Ranks 1, 2, 3 and 1, 3, 2: deviations -1, 0, 1 and -1, 1, 0, of which the product is 1 and both squares 2."""
    assert spearman([1, 2, 3], [10, 30, 20]) == pytest.approx(0.5)
    assert ranks([5, 1, 5, 9]) == [2.5, 1, 2.5, 4]


@pytest.mark.parametrize("seed", range(8))
def test_as_scipy_with_and_without_ties(seed):
    random = Random(seed)
    x, y = ([random.choice([*range(5), random.random(), math.inf]) for _ in range(20)] for _ in range(2))
    assert ranks(x) == rankdata(x).tolist()
    assert spearman(x, y) == pytest.approx(spearmanr(rankdata(x), rankdata(y)).statistic, abs=1e-12)


def grouped(random, groups, noise):
    """Extensions of which one number falls with the other, each with an offset that its lengths share."""
    rows = []
    for _ in range(groups):
        level = random.gauss(0, 1)
        rows.append(
            [(level + random.gauss(0, 0.1), -level + random.gauss(0, noise), random.random()) for _ in range(3)]
        )
    return rows


@pytest.mark.nightly
def test_nineteen_of_twenty_intervals_over_groups_hold_the_truth():
    """The truth is the correlation of very many groups; an interval over points would be too narrow."""
    truth = rank_correlation(grouped(Random("truth"), 900, 1.0), 0, 1).value
    held, narrow = 0, 0
    for seed in range(100):
        rows = grouped(Random(seed), 20, 1.0)
        low, high = rank_correlation(rows, 0, 1)[1:3]
        held += low <= truth <= high
        low, high = rank_correlation([[point] for row in rows for point in row], 0, 1)[1:3]
        narrow += low <= truth <= high
    assert held >= 92  # of 100
    assert held > narrow


def test_intervals_of_few_groups_hold_the_truth_too():
    """A bootstrap of eight groups is too narrow, so less of it is left out."""
    truth = rank_correlation(grouped(Random("truth"), 900, 1.0), 0, 1).value
    intervals = [rank_correlation(grouped(Random(f"few {seed}"), 8, 1.0), 0, 1) for seed in range(100)]
    assert sum(one.low <= truth <= one.high for one in intervals) >= 97  # the usual percentiles: 93


def test_a_lead_is_of_the_same_groups():
    """The first number predicts the second, the third nothing: the lead is the difference of both correlations."""
    rows = grouped(Random(1), 30, 0.3)
    lead = correlation_lead(rows, 0, 2, 1)
    first, other = rank_correlation(rows, 0, 1).value, rank_correlation(rows, 2, 1).value
    assert lead.value == pytest.approx(other - first)
    assert lead.low > 0
    assert correlation_lead(rows, 0, 0, 1)[:3] == (0, 0, 0)


def test_what_has_no_correlation_has_no_interval():
    flat = rank_correlation([[(1.0, 2.0)], [(2.0, 2.0)]], 0, 1)
    assert math.isnan(flat.value)
    assert (flat.low, flat.high) == (-math.inf, math.inf)
    assert rank_correlation([[(1.0, 2.0), (2.0, 1.0)]], 0, 1) == (-1.0, -math.inf, math.inf, 2)


def test_what_is_refused():
    with pytest.raises(InvalidValue, match=r"y must be as many as x \(2\)"):
        spearman([1, 2], [1])
    with pytest.raises(InvalidValue, match="values must be numbers"):
        ranks([1, math.nan])
