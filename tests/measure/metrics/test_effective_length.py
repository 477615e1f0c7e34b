"""How far a model gets, against RULER's published table."""

import pytest

from ropewalk.errors import InvalidValue
from ropewalk.measure.metrics.correlation import effective_length

LENGTHS = [1024 * n for n in (4, 8, 16, 32, 64, 128)]


@pytest.mark.parametrize(
    ("scores", "rising", "falling", "length"),
    # From the table in RULER's README: Llama 3.1 8B, Mistral 7B v0.2, GLM3, LWM, DBRX.
    [
        ((95.5, 93.8, 91.6, 87.4, 84.7, 77.0), 85.4, 91.3, 32),
        ((93.6, 91.2, 87.2, 75.4, 49.0, 13.8), 55.6, 81.2, 16),
        ((87.8, 83.4, 78.6, 69.9, 56.0, 42.0), 62.0, 77.2, 4),
        ((82.3, 78.4, 73.7, 69.1, 68.1, 65.0), 69.9, 75.7, None),
        ((95.1, 93.8, 83.6, 63.1, 2.4, 0.0), 38.0, 74.7, 8),
    ],
)
def test_as_published(scores, rising, falling, length):
    found = effective_length({at: score / 100 for at, score in zip(LENGTHS, scores, strict=True)}, standard=1.0)
    assert 100 * found.rising == pytest.approx(rising, abs=0.06)
    assert 100 * found.falling == pytest.approx(falling, abs=0.06)
    assert found.fixed == (length and 1024 * length)


def test_the_fixed_bar_itself_is_not_above_it():
    assert effective_length({1: 0.856}, standard=1.0).fixed is None
    assert effective_length({1: 0.857}, standard=1.0).fixed == 1


def test_the_relative_threshold_is_85_percent_of_the_base_model():
    scores = {100: 0.40, 200: 0.35, 400: 0.33, 800: 0.0}
    assert effective_length(scores, standard=0.4).own == 200  # the threshold is 0.34
    assert effective_length(scores, standard=0.41).own == 200
    assert effective_length(scores, standard=0.5).own is None
    assert effective_length(scores, standard=0.0).own is None  # a base model that finds nothing is no standard


def test_a_length_behind_one_that_fails_does_not_count():
    assert effective_length({1: 0.9, 2: 0.5, 4: 0.9}, standard=1.0)[:2] == (1, 1)


@pytest.mark.parametrize("scores", [{}, {1: 85.6}, {1: -0.1}])
def test_scores_are_shares(scores):
    with pytest.raises(InvalidValue, match="scores must be shares from 0 to 1"):
        effective_length(scores, standard=1.0)
