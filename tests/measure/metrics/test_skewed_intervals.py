"""Intervals where numbers are not normal: skewed projects, and seeds of two kinds."""

import pytest
import torch

from ropewalk.measure.metrics.intervals import crossed_mean, mean, why_too_few_seeds


def test_an_interval_is_wider_on_the_side_of_the_skewness():
    """Johnson's t, by hand: 0, 0, 0, 0, 1 have the mean 0.2, s / sqrt n = 0.2, t = 2.776, and the skewness is 1.

    Deviations are -0.2 four times and 0.8: cubes sum to 0.48, squares to 0.8, and sqrt(20) / 3 * 0.48 / 0.8^1.5 = 1.
    """
    values = [0.0, 0.0, 0.0, 0.0, 1.0]
    most = 2.776 / 2  # less than (1 + 2 * 2.776^2) / 6 = 2.74
    expected = (0.2, 0.2 - 2.776 * 0.2, 0.2 + (2.776 + most) * 0.2, 5)
    assert mean(values) == pytest.approx(expected, abs=2e-4)
    assert crossed_mean([values]) == pytest.approx(expected, abs=2e-4)
    below = mean([-value for value in values])
    assert (-below.value, -below.high, -below.low) == pytest.approx(expected[:3], abs=2e-4)
    gently = [0.0, 1.0, 2.0, 3.0, 5.0]  # deviations -2.2, -1.2, -0.2, 0.8, 2.8: cubes 10.08, squares 14.8
    error, skewness = (14.8 / 20) ** 0.5, 20**0.5 / 3 * 10.08 / 14.8**1.5
    high = 2.2 + (2.776 + skewness * (1 + 2 * 2.776**2) / 6) * error
    assert mean(gently)[1:3] == pytest.approx((2.2 - 2.776 * error, high), abs=1e-3)
    assert mean([0.0, 0.0, 1.0]).low == pytest.approx(1 / 3 - 4.303 / 3, abs=1e-3)  # three do not tell
    assert mean([0.0, 0.0, 1.0]).high == pytest.approx(1 / 3 + 4.303 / 3, abs=1e-3)
    seeds = crossed_mean([[value] for value in values])  # so few seeds do not tell either
    assert seeds.high - 0.2 == pytest.approx(0.2 - seeds.low)


def test_seeds_of_two_kinds_are_told():
    like = [[0.0, 1.0], [0.2, 1.2], [0.3, 1.5], [0.5, 1.4], [0.1, 1.2]]
    assert why_too_few_seeds(like) == ""
    assert why_too_few_seeds(like[:4]) == "too few seeds"
    assert why_too_few_seeds(like[:3], least=3) == ""
    assert why_too_few_seeds([*like[:4], [-7.0, -5.0]]) == "seeds of two kinds"
    assert why_too_few_seeds([*like, [-6.0, -6.1], [-6.1, -6.0]]) == "seeds of two kinds"
    assert why_too_few_seeds([[1.0]] * 5) == ""
    generator = torch.Generator().manual_seed(5)
    for count, limit in ((5, 0.08), (9, 0.08), (30, 0.08)):
        tables = torch.randn(600, count, 1, generator=generator, dtype=torch.float64).tolist()
        assert 0 < sum(map(bool, map(why_too_few_seeds, tables))) / 600 < limit


def _skewed(draws: int, projects: int, texts: int) -> tuple[list[list[float]], list[str]]:
    """Texts around 1, with a part that their project shares, exponential, and one of their own, normal."""
    generator = torch.Generator().manual_seed(projects)
    shared = torch.empty(draws, projects, dtype=torch.float64).exponential_(generator=generator)
    own = 0.5 * torch.randn(draws, texts, generator=generator, dtype=torch.float64)
    of = [text % projects for text in range(texts)]
    return (shared[:, of] + own).tolist(), [str(project) for project in of]


@pytest.mark.parametrize(("projects", "texts"), [(8, 8), (4, 4), (15, 24)])
def test_an_interval_of_skewed_projects_holds_the_mean(projects, texts):
    """At least 93 of 100, where a bootstrap alone holds it in less than 88."""
    rows, names = _skewed(600, projects, texts)
    found = [mean(row, groups=names, seed=seed) for seed, row in enumerate(rows)]
    assert sum(one.low <= 1 <= one.high for one in found) / len(found) > 0.93
