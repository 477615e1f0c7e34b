"""What is asked for, and what breaks it."""

import math

import pytest

from ropewalk.errors import DoesNotFit, InvalidValue, UnknownName
from ropewalk.search.goal import Goal, Measurements

from search.synthetic import FACTS, goal


def test_conditions_are_broken_by_so_much():
    wanted = goal(max_damage=0.1, min_retrieval=0.8, max_slowdown=2.0)
    broken = wanted.violations(Measurements(loss=9.0, damage=0.3, slowdown=2.5, retrieval=0.5))
    assert broken == pytest.approx({"max_damage": 0.2, "min_retrieval": 0.3, "max_slowdown": 0.5}, abs=2e-5)
    kept = wanted.violations(Measurements(loss=9.0, damage=0.1, slowdown=2.0, retrieval=0.8))
    assert all(each <= 0 for each in kept.values())
    assert goal().violations(Measurements(9.0, 9.0, 9.0)) == {}


def test_a_time_that_is_not_known_meets_no_limit():
    figures = Measurements(loss=9.0, damage=0.0, slowdown=math.nan)
    assert goal(max_slowdown=100.0).violations(figures)["max_slowdown"] > 0
    assert goal().violations(figures) == {}


def test_no_damage_at_all_bears_rounding_and_no_more():
    wanted = goal(max_damage=0.0)
    assert wanted.violations(Measurements(1.0, 2e-7, 1.0))["max_damage"] <= 0
    assert wanted.violations(Measurements(1.0, 2e-4, 1.0))["max_damage"] > 0


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"max_damage": -0.1}, "max_damage must be at least 0"),
        ({"min_retrieval": 1.5}, "min_retrieval must be above 0 and at most 1"),
        ({"max_slowdown": 0}, "max_slowdown must be above 0"),
        ({"deployable": "mlx"}, "there is no value for deployable 'mlx'. Known: any, static"),
        ({"samples": 1}, "samples must be at least 2"),
    ],
)
def test_bad_conditions(given, words):
    with pytest.raises((InvalidValue, UnknownName), match=words):
        Goal(**{"facts": FACTS, "target_len": 64, "samples": 2, **given})


@pytest.mark.parametrize("length", [32, 16])
def test_a_target_within_the_trained_length(length):
    with pytest.raises(DoesNotFit, match=r"target_len must be above the trained length \(32\)"):
        Goal(facts=FACTS, target_len=length)
