"""Differences from the base model: on the same tokens, worked out here from the samples."""

import math
from dataclasses import replace

import pytest

from ropewalk.measure.comparison.changes import change_at, changes_by_position
from ropewalk.measure.comparison.verdict import NO_ESTIMATE

from measure.report.made_up import BINS, LENGTHS, comparison


@pytest.fixture
def made():
    return comparison(["yarn", "pi"], rates=[-0.05, 0.5])


def test_by_length_it_is_the_loss_minus_the_base_models_at_its_trained_length(made):
    base, yarn, pi = made.candidates
    for each, rate in ((base, 1.0), (yarn, -0.05), (pi, 0.5)):
        for doublings, length in enumerate(LENGTHS):
            assert change_at(made, each, length).value == pytest.approx(rate * doublings)
        assert change_at(made, each, LENGTHS[-1]) == each.change
    assert change_at(made, base, LENGTHS[0])[:3] == (0.0, 0.0, 0.0)


def test_by_position_it_is_the_loss_minus_the_base_models_there(made):
    base, yarn, _ = made.candidates
    rows = changes_by_position(made, yarn)
    assert [row.position for row in rows] == [8 + 16 * n for n in range(BINS)]
    for place, row in enumerate(rows):
        pairs = [
            (mine["curve"][place], theirs["curve"][place])
            for mine, theirs in zip(yarn.at("context", 256).samples, base.at("context", 256).samples, strict=True)
        ]
        assert row.loss == pytest.approx(sum(mine for mine, _ in pairs) / 3)
        assert row.change.value == pytest.approx(sum(mine - theirs for mine, theirs in pairs) / 3)
        # The same in every text, since the texts' own parts cancel out: an interval of no width.
        assert row.change.high - row.change.low == pytest.approx(0, abs=1e-6)
    assert all(row.change.value == 0 for row in changes_by_position(made, base))


def starved(candidate):
    return replace(candidate, rows=tuple(row for row in candidate.rows if row.length != 256))


def test_what_was_not_measured_has_no_difference(made):
    base, yarn, pi = made.candidates
    without = replace(made, candidates=(base, starved(yarn), pi))
    assert changes_by_position(without, without.candidates[1]) == ()
    assert change_at(without, without.candidates[1], 256) == NO_ESTIMATE
    without = replace(made, candidates=(starved(base), yarn, pi))
    assert {row.change for row in changes_by_position(without, yarn)} == {NO_ESTIMATE}
    assert not any(math.isnan(row.loss) for row in changes_by_position(without, yarn))
    assert change_at(without, yarn, 256) == yarn.change
