"""Verdicts over seeds and texts: the seeds that all methods have, and the texts of each."""

from typing import NamedTuple

import pytest

from ropewalk.measure.metrics.intervals import crossed_mean

from studies.claims import NATS, Claim
from studies.zoo.inside.by_seed import BySeed


class Term(NamedTuple):
    weight: float
    method: str

    @property
    def label(self):
        return f"curve of {self.method}"


def study(models):
    return BySeed(models, "sizes", list, lambda _, sizes: sizes, lambda _, sizes: {4: sizes, 8: [2 * x for x in sizes]})


def model(method, seed, *sizes):
    return {"method": method, "seed": seed, "sizes": sizes}


ONE_MORE = Claim("one-more", "One has more.", "nobody", ((Term(1, "one"), Term(-2, "other")),), 0.5)


def test_a_sum_is_taken_text_by_text_and_seed_by_seed():
    models = [model("one", 0, 3, 5), model("other", 0, 1, 2), model("one", 1, 4, 4), model("other", 1, 1, 1)]
    verdict = study(models).verdict(ONE_MORE, NATS, ("", ""))
    assert verdict.above[0].value == pytest.approx((3 - 2 + 5 - 4 + 4 - 2 + 4 - 2) / 4 - 0.5)
    assert list(verdict.curves) == ["curve of one", "curve of other"]
    assert [(place, one.value) for place, one in verdict.curves["curve of one"]] == [(4, 4), (8, 8)]


def test_texts_of_a_project_are_drawn_together():
    """Some measurements read only the first texts, so there may be more projects than texts."""
    models = [
        model("one", 0, 3, 5, 4),
        model("other", 0, 1, 2, 1),
        model("one", 1, 4, 4, 6),
        model("other", 1, 1, 1, 1),
    ]
    projects = ["a", "b", "b", "c"]
    by_project = BySeed(models, "sizes", list, lambda _, x: x, lambda _, x: {4: x}, projects=projects)
    verdict = by_project.verdict(ONE_MORE, NATS, ("", ""))
    apart = crossed_mean([[1, 1, 2], [2, 2, 4]], groups=projects[:3])
    assert verdict.above[0] == pytest.approx((apart.value - 0.5, apart.low - 0.5, apart.high - 0.5, 6))
    assert verdict.curves["curve of one"] == [(4, crossed_mean([[3, 5, 4], [4, 4, 6]], groups=projects[:3]))]


def test_a_seed_that_one_method_lacks_does_not_count():
    both = [model("one", 0, 3, 3), model("other", 0, 1, 1), model("one", 2, 3, 3), model("other", 2, 1, 1)]
    alone = [model("one", 1, 99, 99), model("other", 3, 99, 99), {"method": "other", "seed": 1}]
    assert study(both + alone).verdict(ONE_MORE, NATS, ("", "")).above[0].value == pytest.approx(0.5)
    assert study(both[:2] + alone).verdict(ONE_MORE, NATS, ("", "")).reason == "a single seed"
    assert study(alone).verdict(ONE_MORE, NATS, ("", "")).reason == "not measured"


def test_points_of_a_curve_keep_within_what_they_can_be():
    models = [model("one", 0, 0, 4), model("other", 0, 1, 1), model("one", 1, 0, 0), model("other", 1, 1, 1)]
    bounded = BySeed(models, "sizes", list, lambda _, x: x, lambda _, x: {4: x}, least=0, most=4)
    ((_, point),) = bounded.verdict(ONE_MORE, NATS, ("", "")).curves["curve of one"]
    assert (point.low, point.high) == (0, 4)
