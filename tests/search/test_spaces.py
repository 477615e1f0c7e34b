"""Spaces: their values make extensions that fit, and children of schedules are schedules."""

from collections import Counter
from random import Random

import pytest
from extension.outsiders import method_file
from optuna.distributions import CategoricalDistribution, FloatDistribution

import ropewalk as rw
from ropewalk.errors import DoesNotFit, InvalidValue, UnknownName
from ropewalk.search.proposals import next_space, open_spaces, seeds
from ropewalk.search.spaces import ALL, Descent, DynamicSchedules, HandSet, Mixed, Pairs, Parts, Reaches, WindowsBelow
from ropewalk.search.spaces.pairs import MOST_SHARE, cross, genes, monotone, mutate
from ropewalk.search.trials import MeasuredTrial

from search.synthetic import FACTS, everything, goal, is_static

PROPOSING = [each for each in ALL if not isinstance(each, HandSet | Descent)]  # a descent has its own tests
each_space = pytest.mark.parametrize("space", PROPOSING, ids=lambda each: each.name)


def table(extension):
    return extension.frequencies_or_rope.table(FACTS, 1).inv_freq.tolist()


@each_space
def test_proposals_are_within_bounds_and_fit_the_model(space):
    knobs, kept = space.knobs(goal()), 0
    for seed in range(20):
        values = space.proposed(goal(), [], Random(seed))
        assert set(values) == set(knobs)
        for name, knob in knobs.items():
            assert knob._contains(knob.to_internal_repr(values[name]))
        try:
            kept += everything(space.extension(goal(), values))
        except rw.RopewalkError:
            continue  # the search draws again
    assert kept >= 15


@each_space
def test_the_same_turn_proposes_the_same(space):
    assert space.proposed(goal(), [], Random(5)) == space.proposed(goal(), [], Random(5))
    assert space.proposed(goal(), [], Random(5)) != space.proposed(goal(), [], Random(6))


@pytest.mark.sampled(cases=2)
@each_space
def test_every_knob_makes_a_difference(space):
    random = Random(1)
    for name, knob in space.knobs(goal()).items():
        found = set()
        for _ in range(60):
            values = space.proposed(goal(), [], random)
            others = knob.choices if isinstance(knob, CategoricalDistribution) else (knob.low, knob.high)
            found |= {len({space.extension(goal(), {**values, name: other}) for other in others})}
        assert max(found) > 1, name


def test_yarn_is_among_the_parts_and_among_the_pairs():
    yarn = rw.parse("yarn:factor=8")
    for space in (Parts(), Pairs()):
        made = space.extension(goal(), space.example(goal()))
        assert table(made) == pytest.approx(table(yarn), rel=2e-4)
        scale = made.scales[0].value
        assert scale == pytest.approx((0.1 * 2.0794415416798357 + 1) ** 2, rel=1e-4)  # ln 8


def test_known_points_of_the_other_spaces():
    mixed = Mixed().extension(goal(), {"power": 0.0, "overshoot": 1.0, "temperature": 1.0})
    assert table(mixed) == pytest.approx(table(rw.parse("pi:factor=8")))
    assert mixed.scales == ()
    dynamic = DynamicSchedules()
    assert dynamic.extension(goal(), dynamic.example(goal())) == rw.parse("dynamic_yarn")
    reaches = Reaches()
    assert reaches.extension(goal(), reaches.example(goal())) == rw.parse("rerope:window=16+log_n")
    below = WindowsBelow()
    made = below.extension(goal(), {**below.example(goal()), "below": 1, "window": 0.25})
    assert made.at_layer(0, FACTS).reach == rw.parse("window:window=8").reach
    assert made.at_layer(1, FACTS).reach == rw.parse("rerope:window=16").reach


def test_far_keys_stay_within_the_trained_length():
    reaches = Reaches()
    for kind in ("leaky_rerope", "self_extend"):
        values = {**reaches.example(goal()), "reach": kind, "near": 0.5, "room": 0.5}
        far = reaches.extension(goal(), values).reach.spans()[1]
        last = rw.parse("rope").reach_or_causal.spans()[0].q_at  # a token where it stands
        distance = float(far.q_at(last(_tensor(goal().target_len - 1))) - far.k_at(_tensor(0)))
        assert 16 < distance <= 25  # half the window's end, and half of what is left


def _tensor(value):
    import torch

    return torch.tensor([value])


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([0.1, 0.2, 0.2, 0.9], [0.1, 0.2, 0.2, 0.9]),
        ([0.2, 0.6, 0.4, 0.8], [0.2, 0.5, 0.5, 0.8]),
        ([0.9, 0.1], [0.5, 0.5]),
    ],
)
def test_the_nearest_that_never_falls(given, expected):
    assert monotone(given) == pytest.approx(expected)


def test_children_are_monotone_by_construction():
    random = Random(0)
    mother = monotone([random.uniform(0, MOST_SHARE) for _ in range(16)])
    for _ in range(300):
        father = monotone([random.uniform(0, MOST_SHARE) for _ in range(16)])
        child = mutate(cross(mother, father, random), random)
        assert list(child) == sorted(child)
        assert 0 <= min(child) <= max(child) <= MOST_SHARE
        mother = child


def test_a_child_has_genes_of_both():
    random, low, high = Random(3), (0.1,) * 8, (0.9,) * 8
    children = [cross(low, high, random) for _ in range(200)]
    tails = [child for child in children if set(child) == {0.1, 0.9}]
    assert tails  # a run up to the slowest pair comes through whole
    assert {child.index(0.9) for child in tails} == set(range(1, 8))


def test_children_differ_in_runs_of_pairs_and_by_little():
    random, mother = Random(0), tuple(n / 16 for n in range(16))
    moved = [[a != b for a, b in zip(mother, mutate(mother, random), strict=True)] for _ in range(200)]
    assert all(any(each) for each in moved[:50]) or sum(any(each) for each in moved) > 190
    assert sum(map(sum, moved)) / len(moved) > 2


def test_one_to_three_runs_are_moved():
    """Of shares that are all alike, each run makes one level more at most; a third of the children have one run."""
    random = Random(0)
    counts = Counter(len(set(mutate((0.7,) * 40, random))) for _ in range(600))
    assert counts[1] < 60
    assert counts[1] + counts[2] > 200 - 3 * (600 * 1 / 3 * 2 / 3) ** 0.5
    assert max(counts) == 4


def test_parents_are_the_best_static_ones_of_any_space():
    wanted = goal()
    yarn, pi, rerope = (rw.parse(f"{line}:factor=8") if line != "rerope" else rw.parse("rerope:window=8")
                        for line in ("yarn", "pi", "rerope"))  # fmt: skip
    past = [
        _tried(0, pi, 2.0),
        _tried(1, yarn, 1.0),
        _tried(2, rerope, 0.5),
        _tried(3, yarn, 0.1)._replace(figures=None),
    ]
    from ropewalk.search.spaces.pairs import parents

    assert parents(wanted, past) == [genes(wanted, yarn), genes(wanted, pi)]
    assert parents(goal(max_damage=0.1), [past[0], past[1]._replace(violations={"max_damage": 0.2})])[0] == genes(
        wanted, pi
    )


def _tried(number, extension, loss):
    from ropewalk.search.goal import Measurements

    return MeasuredTrial(number, "parts", {}, extension, {0: loss}, Measurements(loss, 0.0, 1.0), {}, seed=False)


def test_what_is_not_static_has_no_genes():
    for line in ("rerope:window=8", "log_n", "dynamic_yarn", "xpos"):
        with pytest.raises(DoesNotFit):
            genes(goal(), rw.parse(line))
    with pytest.raises(DoesNotFit, match="layers"):
        genes(goal(), rw.Extension(layers={0: rw.parse("yarn:factor=8")}))


def test_the_leader_is_bettered_every_other_turn():
    spaces = open_spaces(goal(), everything)
    assert [each.name for each in spaces] == [each.name for each in ALL[1:]]
    own = {"yarn:factor=8": {"descent", "pairs"}, "rerope:window=8+log_n": {"reaches"}, "dynamic_yarn": {"dynamic"}}
    for line, bettering in own.items():
        past = [_tried(0, rw.parse(line), 1.0)]
        assert {next_space(spaces, goal(), past, turn).name for turn in range(0, 20, 2)} == bettering
        assert {next_space(spaces, goal(), past, turn).name for turn in range(1, 20, 2)} == {s.name for s in spaces}


def test_only_what_can_be_loaded_is_open():
    assert [each.name for each in open_spaces(goal(), is_static)] == ["parts", "mixed", "descent", "pairs"]
    with pytest.raises(DoesNotFit, match="deployable"):
        open_spaces(goal(), lambda extension: False)


def test_seeds_are_what_was_set_by_hand_each_once():
    found = list(seeds(goal(), everything).values())
    lines = [values["line"] for space, values in found if isinstance(space, HandSet)]
    assert lines[:2] == ["long_reach", "yarn"]
    assert len(lines) == len(set(lines)) > 20
    assert [values["line"] for values in HandSet().seeds(goal()) if values["line"] not in lines] == ["dpe+log_n"]
    assert [space.name for space, _ in found[len(lines) :]] == ["reaches", "windows_below"]  # others have theirs
    assert all("rerope" not in str(values) for _, values in seeds(goal(), is_static).values())


def test_lines_of_ones_own_are_tried_first_and_never_left_out_silently(tmp_path):
    line = f"{method_file(tmp_path)}:Half:factor=4"
    wanted = goal(also=(line, "streaming"))
    assert [values.get("line") for _, values in seeds(wanted, everything).values()][:3] == [
        line,
        "streaming",
        "long_reach",
    ]
    assert wanted.to_json()["also"] == (line, "streaming")
    assert "also" not in goal().to_json()
    with pytest.raises(DoesNotFit, match=r"my.py:Half:factor=4 does not fit the model, the engine or the space"):
        seeds(wanted, lambda extension: extension.frequencies is None)
    with pytest.raises(InvalidValue, match="factor must be at least 1"):
        seeds(goal(also=(line.replace("factor=4", "factor=0.5"),)), everything)
    with pytest.raises(UnknownName, match=r"my.py has no method 'Quarter'"):
        goal(also=(line.replace("Half", "Quarter"),))


TURNS = {"low_turns": (0.25, 8, True), "span": (1.5, 64, True)}
WARMTH = {"temperature": (0.7, 2.5, True)}
OVER = {"overshoot": (0.5, 2, True)}
RANGES = {
    "parts": {**TURNS, **OVER, **WARMTH},
    "mixed": {"power": (0, 4, False), **OVER, **WARMTH},
    "dynamic": {**TURNS, "power": (0, 4, False), "coefficient": (0, 0.3, False)},
    "pairs": {**{f"share_{pair:03}": (0, 1.5, False) for pair in range(4)}, **WARMTH},
}


@pytest.mark.parametrize("name", RANGES)
def test_how_far_knobs_turn(name):
    """A study that is gone on with, maybe elsewhere, has to draw from what it began with."""
    (space,) = (each for each in ALL if each.name == name)
    knobs = {knob: each for knob, each in space.knobs(goal()).items() if isinstance(each, FloatDistribution)}
    assert {knob: (each.low, each.high, each.log) for knob, each in knobs.items()} == RANGES[name]


def test_genes_are_written_to_four_decimals():
    for seed in range(5):
        values = Pairs().proposed(goal(), [], Random(seed))
        assert all(value == float(f"{value:.4f}") for value in values.values())
