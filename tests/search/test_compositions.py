"""The space of compositions: what is in it, and that it improves on the best instead of only drawing."""

import math
from collections import Counter
from random import Random

import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution

import ropewalk as rw
from ropewalk.errors import UnknownName
from ropewalk.methods.scales import LogN
from ropewalk.search.goal import Goal, Measurements
from ropewalk.search.proposals import names_of, open_spaces, seeds, spaces_of
from ropewalk.search.search_loop import search, winner
from ropewalk.search.spaces import ALL, Compositions, compositions
from ropewalk.search.spaces.compositions import COMPOSITION_PARENTS, LAYOUTS, PARTS, change, cross
from ropewalk.search.trials import MeasuredTrial, finished_trials

from search.synthetic import FACTS, everything, is_static, outcome, study

pytestmark = pytest.mark.nightly

SPACE = Compositions()


def goal(**given):
    return Goal(facts=FACTS, target_len=256, samples=2, space="compositions", **given)


def values(**given):
    plain = {"reach": "whole", "near": 0.5, "room": 0.5, "schedule": "as_trained", "stretch": 1.0, "shape": 0.4}
    plain |= {
        "log_n": 0.0,
        "discount": 0.0,
        "temperature": 1.0,
        "layout": "all_whole",
        "local": 1,
        "window": 0.5,
        "sinks": 4,
    }
    return {**plain, **given}


def _tried(number, extension, loss, own=None):
    space = "compositions" if own else "hand_set"
    figures = Measurements(loss, 0.0, 1.0)
    return MeasuredTrial(number, space, own or {}, extension, {0: loss}, figures, {}, seed=not own)


# What is in it.


@pytest.mark.parametrize(
    ("chosen", "line"),
    [
        ({"reach": "rerope", "log_n": 1.0}, "rerope:window=16+log_n"),
        (
            {"reach": "rerope", "log_n": 1.5, "discount": 0.25},
            "rerope:window=16+biases.far_discount:window=16,strength=0.25+log_n:strength=1.5",
        ),
        ({"reach": "leaky_rerope", "near": 0.25}, "leaky_rerope:window=8,leak=20.667"),  # (256 - 8) / 12
        ({"reach": "self_extend", "near": 0.25}, "self_extend:window=8,group=21"),
        ({"reach": "dual_chunk"}, "dual_chunk:chunk=16,local=8"),
        ({"schedule": "by_parts", "stretch": 8.0, "temperature": 1.2}, "by_parts:factor=8+temperature:value=1.2"),
        ({"schedule": "ntk", "stretch": 4.0}, "ntk:factor=4"),
        ({"schedule": "ntk_mixed", "stretch": 4.0, "shape": 0.25}, "frequencies.ntk_mixed:factor=4,power=1"),
        ({"reach": "rerope", "schedule": "ntk", "stretch": 2.0}, "rerope:window=16+ntk:factor=2"),
    ],
)
def test_its_values_are_lines_of_the_notation(chosen, line):
    assert SPACE.extension(goal(), values(**chosen)) == rw.parse(line)


@pytest.mark.parametrize(
    ("layout", "local", "expected"),
    [
        ("all_whole", 2, []),
        ("local_below", 2, [0, 1]),
        ("local_above", 2, [4, 5]),
        ("whole_between", 2, [0, 1, 3, 4]),
        ("whole_between", 1, [0, 2, 4]),
    ],
)
def test_which_layers_are_local(layout, local, expected):
    assert LAYOUTS[layout](6, local) == expected


def test_local_layers_have_a_window_and_the_first_tokens():
    made = SPACE.extension(goal(), values(reach="rerope", layout="local_below", local=2, window=0.25, sinks=3))
    assert [made.at_layer(layer, FACTS).reach for layer in range(3)] == [
        *[rw.parse("sinks:window=8,n_sink=3").reach] * 2,
        rw.parse("rerope:window=16").reach,
    ]
    alone = SPACE.extension(goal(), values(layout="local_below", window=0.25, sinks=0))
    assert alone.at_layer(0, FACTS).reach == rw.parse("window:window=8").reach


def test_every_knob_makes_a_difference():
    random, knobs = Random(1), SPACE.knobs(goal())
    for name, knob in knobs.items():
        most = 0
        for _ in range(60):
            start = SPACE.proposed(goal(), [], random)
            ends = knob.choices if isinstance(knob, CategoricalDistribution) else (knob.low, knob.high)
            most = max(most, len({SPACE.extension(goal(), {**start, name: end}) for end in ends}))
        assert most > 1, name


def test_all_parts_together_are_all_knobs():
    assert sorted(name for part in PARTS for name in part) == sorted(SPACE.knobs(goal()))


def test_what_is_drawn_fits_the_model_mostly():
    kept = 0
    for seed in range(40):
        try:
            kept += everything(SPACE.extension(goal(), SPACE.proposed(goal(), [], Random(seed))))
        except rw.RopewalkError:
            continue
    assert kept >= 25


# How it improves on the best.


def test_parents_are_the_best_of_this_space_and_hand_set_ones_that_it_contains():
    own = values(reach="dual_chunk", near=0.3)
    past = [
        _tried(0, rw.parse("rerope:window=16+log_n"), 1.0),
        _tried(1, SPACE.extension(goal(), own), 0.5, own),
        _tried(2, rw.parse("window:window=8"), 0.1),  # is not in it
        _tried(3, rw.parse("rerope:window=8"), 0.2)._replace(figures=None),
    ]
    assert SPACE.parents(goal(), past) == [own, values(reach="rerope", log_n=1.0)]
    many = [_tried(n, SPACE.extension(goal(), own), n, {**own, "near": 0.1 + n / 100}) for n in range(20)]
    assert [parent["near"] for parent in SPACE.parents(goal(), many)] == [
        0.1 + n / 100 for n in range(COMPOSITION_PARENTS)
    ]


def test_a_child_has_whole_parts_of_both():
    mother, father = dict.fromkeys(values(), "mother"), dict.fromkeys(values(), "father")
    counts = Counter()
    for seed in range(200):
        child = cross(mother, father, Random(seed))
        assert all(len({child[name] for name in part}) == 1 for part in PARTS)
        counts[tuple(child[part[0]] for part in PARTS)] += 1
    assert len(counts) == 2 ** len(PARTS)


@pytest.mark.parametrize(
    ("mother", "unread"),
    [
        (values(reach="rerope", schedule="by_parts", log_n=1.0), {"local", "window", "sinks"}),
        (values(reach="rerope", schedule="by_parts", layout="local_below"), {"discount"}),
        (values(reach="rerope", schedule="ntk"), {"shape", "local", "window", "sinks"}),
        (values(), {"near", "room", "discount", "stretch", "shape", "local", "window", "sinks"}),
    ],
)
def test_a_child_differs_in_one_or_two_parameters_that_its_methods_read(mother, unread):
    changed = Counter()
    for seed in range(300):
        child = SPACE.mutated(goal(), mother, Random(seed))
        names = [name for name in mother if child[name] != mother[name]]
        assert len(names) <= 2
        changed.update(names)
    assert set(changed) == set(mother) - unread


def test_a_step_is_small_within_bounds_and_another_choice():
    knobs, random = SPACE.knobs(goal()), Random(0)
    for name, knob in knobs.items():
        for _ in range(100):
            value = change(values(stretch=4.0)[name], knob, random)
            assert knob._contains(knob.to_internal_repr(value))
            if isinstance(knob, CategoricalDistribution):
                assert value != values()[name]
    near = [change(0.5, knobs["near"], random) for _ in range(300)]
    assert 0.1 < math.sqrt(sum((value - 0.5) ** 2 for value in near) / 300) < 0.16  # a seventh of 7/8
    assert isinstance(knobs["near"], FloatDistribution)


def test_most_proposals_are_children_and_the_same_turn_proposes_the_same():
    own = values(reach="self_extend", near=0.3, log_n=1.0)
    past = [_tried(0, SPACE.extension(goal(), own), 1.0, own)]
    near = 0
    for seed in range(100):
        child = SPACE.proposed(goal(), past, Random(seed))
        near += sum(child[name] != own[name] for name in own) <= 2
        assert child == SPACE.proposed(goal(), past, Random(seed))
    assert 70 < near < 97


class Far:
    """The loss of a composition is how far it is from one that no seed is near to."""

    best = values(reach="leaky_rerope", near=0.8, log_n=1.0, temperature=1.1, layout="local_below", local=2, window=0.3)

    def rungs(self, extension):
        wanted = SPACE.extension(goal(), self.best)
        loss = float(type(extension.reach) is not type(wanted.reach))
        loss += abs((getattr(extension.reach, "window", 0) - wanted.reach.window) / 32)
        strength = sum(scale.strength for scale in extension.scales if isinstance(scale, LogN))
        loss += 0.5 * (len(extension.layers) != 2) + 0.3 * abs(strength - 1)
        yield loss

    def slopes(self, extension):
        return None

    def figures(self, extension):
        return Measurements(next(self.rungs(extension)), damage=0.0, slowdown=1.0)


def test_the_search_improves_on_what_is_set_by_hand():
    own = study(goal(), takes=everything)
    search(own, goal(), Far(), trials=110)
    found, by_hand = (
        winner(own, goal()),
        [trial.figures.loss for trial in finished_trials(own) if trial.seed and trial.figures],
    )
    assert found.space == "compositions"
    assert found.figures.loss < 0.5 * min(by_hand)
    assert found.figures.loss < 0.2


def test_it_finds_more_than_drawing_does(monkeypatch):
    bred, drawn = study(goal(), takes=everything), study(goal(), takes=everything)
    search(bred, goal(), Far(), trials=80)
    monkeypatch.setattr(compositions, "FRESH", 1.0)
    search(drawn, goal(), Far(), trials=80)
    assert winner(bred, goal()).figures.loss < winner(drawn, goal()).figures.loss


def test_it_resumes_as_if_it_had_not_been_stopped():
    whole, stopped = study(goal(), takes=everything), study(goal(), takes=everything)
    search(whole, goal(), Far(), trials=35)
    for trials in (3, 28, 35):
        search(stopped, goal(), Far(), trials=trials)
    assert outcome(stopped) == outcome(whole)


# Where it is asked for.


def test_it_is_searched_where_it_is_named():
    assert list(spaces_of(goal())) == ["hand_set", "compositions"]
    assert [space.name for space in open_spaces(goal(), everything)] == ["compositions"]
    usual = Goal(facts=FACTS, target_len=256)
    assert list(spaces_of(usual)) == [space.name for space in ALL]
    assert names_of(usual).choices == tuple(space.name for space in ALL)


def test_a_goal_of_the_usual_spaces_is_what_it_was():
    assert "space" not in Goal(facts=FACTS, target_len=256).to_json()
    assert goal().to_json()["space"] == "compositions"
    with pytest.raises(UnknownName, match="there is no space 'outer'"):
        Goal(facts=FACTS, target_len=256, space="outer")


LIKE_SEEDS = "(Temperature(value="  # of a space of compositions; hand-set extensions have YaRN's or LongRoPE's


@pytest.mark.parametrize("warm", [0.0, 1.0], ids=["its own are pruned", "its own are the best"])
def test_for_an_engine_it_begins_with_what_the_engine_loads(warm):
    static = goal(deployable="static")
    assert [space.name for space in open_spaces(static, is_static)] == ["compositions"]
    lines = [str(extension) for extension in seeds(static, is_static)]
    assert lines
    assert not any("ReRoPE" in line for line in lines)
    own = study(static, takes=is_static)

    class Preferring(Far):
        """What this space begins with is the worst, so that it is pruned; or else the best."""

        def rungs(self, extension):
            yield abs(warm - (LIKE_SEEDS in str(extension)))

    search(own, static, Preferring(), trials=len(lines) + 6)
    assert all(is_static(trial.extension) for trial in finished_trials(own))
    assert len(finished_trials(own)) == len(lines) + 6
