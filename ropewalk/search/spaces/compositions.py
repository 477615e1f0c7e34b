"""Compositions: a reach, a schedule, scales and which layers read the whole text, each with its free parameters.

Children of the best compositions so far: a child takes each part from one of two parents, and one or two of its
parameters change. Hand-set extensions that this space contains are parents too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import islice
from random import Random
from typing import Any, ClassVar

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from ropewalk.extension.extension import Extension
from ropewalk.methods.biases import Bias, FarDiscount
from ropewalk.methods.frequencies import NTK, ByParts, Frequencies, NTKMixed
from ropewalk.methods.reach import Reach, Sinks, Window
from ropewalk.methods.scales import LogN, Scale, Temperature
from ropewalk.methods.scales.scale import Over
from ropewalk.search.conditions import ANY
from ropewalk.search.goal import Goal
from ropewalk.search.spaces.parts import REACHES, ReachLengths
from ropewalk.search.spaces.space import Space, Values, draw_parent, tidy, unknown_knob
from ropewalk.search.trials import MeasuredTrial, rank

WHOLE = "whole"  # no reach: all keys at their distances
COMPOSITION_PARENTS = 6
FRESH = 0.15  # share of proposals that are drawn at random
USUAL_STEP = 0.15  # of a parameter's range: the usual size of a change
PARTS = (
    ("reach", "near", "room"),
    ("schedule", "stretch", "shape"),
    ("log_n", "discount", "temperature"),
    ("layout", "local", "window", "sinks"),
)


# By the factor, and a shape from 0 to 1: the turns below which YaRN's pairs are slowed whole, the power of NTK mixed.
SCHEDULES: dict[str, Callable[[float, float], Frequencies | None]] = {
    "as_trained": lambda factor, shape: None,
    "by_parts": lambda factor, shape: ByParts(factor=factor, low_turns=0.25 * 32**shape, high_turns=8 * 32**shape),
    "ntk_mixed": lambda factor, shape: NTKMixed(factor=factor, power=round(4 * shape, 3)),
    "ntk": lambda factor, shape: NTK(factor=factor),
}
# The layers that read a window and the first tokens: how many of them, counted from this end.
LAYOUTS: dict[str, Callable[[int, int], list[int]]] = {
    "all_whole": lambda layers, local: [],
    "local_below": lambda layers, local: list(range(local)),
    "local_above": lambda layers, local: list(range(layers - local, layers)),
    "whole_between": lambda layers, local: [layer for layer in range(layers) if (layer + 1) % (local + 1)],
}


class Compositions(Space):
    """Everything that composes: about a dozen parameters, four of which choose methods."""

    name: ClassVar[str] = "compositions"

    def knobs(self, goal: Goal) -> dict[str, BaseDistribution]:
        return {
            "reach": CategoricalDistribution((WHOLE, *REACHES)),
            "near": FloatDistribution(1 / 16, 15 / 16),  # window or chunk, as a share of the trained length
            "room": FloatDistribution(1 / 16, 1.0),  # share of the rest of the trained length that far keys take
            "schedule": CategoricalDistribution(tuple(SCHEDULES)),
            "stretch": FloatDistribution(1.0, max(2.0, 2 * goal.factor), log=True),
            "shape": FloatDistribution(0.0, 1.0),
            "log_n": FloatDistribution(0.0, 3.0),  # its strength
            "discount": FloatDistribution(0.0, 1.0),  # of far keys, by its strength
            "temperature": FloatDistribution(0.8, 1.6, log=True),
            "layout": CategoricalDistribution(tuple(LAYOUTS)),
            "local": IntDistribution(1, max(1, goal.facts.layers - 1)),
            "window": FloatDistribution(1 / 16, 15 / 16, log=True),  # of local layers, as a share of the trained length
            "sinks": IntDistribution(0, 16),  # first tokens that local layers keep
        }

    def example(self, goal: Goal) -> Values:
        return self.seeds(goal)[0]

    def seeds(self, goal: Goal) -> list[Values]:
        """Known compositions, from which it begins: static ones where an engine must load the answer."""
        plain = {"reach": WHOLE, "near": 0.5, "room": 0.5, "schedule": "as_trained", "stretch": 1.0, "shape": 0.4}
        plain |= {
            "log_n": 0.0,
            "discount": 0.0,
            "temperature": 1.0,
            "layout": "all_whole",
            "local": 1,
            "window": 0.5,
            "sinks": 4,
        }
        slowed = {**plain, "schedule": "by_parts", "stretch": goal.factor, "temperature": 1.2}
        mixed = {**slowed, "schedule": "ntk_mixed", "shape": 0.16}
        if goal.deployable != ANY:
            return [slowed, mixed]
        reaching = [{**plain, "reach": reach, "log_n": 1.0} for reach in REACHES]
        far = {"near": 3 / 8, "room": 0.6, "log_n": 1.5, "discount": 0.3}  # the preset long_reach, about
        reaching += [{**plain, "reach": reach, **far} for reach in ("rerope_by_parts", "self_extend")]
        below = {**reaching[0], "layout": "local_below", "local": max(1, goal.facts.layers // 3)}
        return [*reaching, slowed, mixed, {**reaching[0], "schedule": "by_parts", "stretch": 2.0}, below]

    def extension(self, goal: Goal, values: Values) -> Extension:
        scales: tuple[Scale, ...] = (LogN(strength=values["log_n"]),) if values["log_n"] else ()
        if values["temperature"] != 1:
            # Where a part of a head rotates, engines have the temperature of that part alone.
            over: Over = "head" if goal.deployable == ANY else "rotating"
            scales += (Temperature(value=values["temperature"], over=over),)
        schedule = SCHEDULES[values["schedule"]](values["stretch"], values["shape"])
        lengths, layers = ReachLengths.of(goal, values), goal.facts.layers
        reach = None if values["reach"] == WHOLE else REACHES[values["reach"]](lengths)
        local = Extension(reach=_local(goal, values))
        overrides = dict.fromkeys(LAYOUTS[values["layout"]](layers, min(values["local"], layers - 1)), local)
        biases = () if unused_parameters(values) & {"discount"} else _discount_far(lengths.near, values["discount"])
        return Extension(frequencies=schedule, reach=reach, biases=biases, scales=scales, layers=overrides)

    def betters(self, goal: Goal, extension: Extension) -> bool:
        """All of them."""
        return True

    def proposed(self, goal: Goal, past: Sequence[MeasuredTrial], random: Random) -> Values:
        """A child of the best compositions, or of those it begins with where none was completed; now and then something
        new, which an engine seldom loads."""
        parents = self.parents(goal, past) or (self.seeds(goal) if past else [])
        if not parents or random.random() < FRESH:
            return {name: draw(knob, random) for name, knob in self.knobs(goal).items()}
        child = cross(draw_parent(parents, random), draw_parent(parents, random), random)
        return self.mutated(goal, child, random)

    def parents(self, goal: Goal, past: Sequence[MeasuredTrial]) -> list[Values]:
        """The values of the best trials that this space contains, the best first."""
        known = {self.extension(goal, values): values for values in self.seeds(goal)}
        every = (trial.values if trial.space == self.name else known.get(trial.extension) for trial in rank(past))
        return list(islice((values for values in every if values), COMPOSITION_PARENTS))

    def mutated(self, goal: Goal, mother: Values, random: Random) -> Values:
        """One or two of the parameters that count are changed: a number by a step, a choice to another one."""
        knobs = self.knobs(goal)
        names = random.sample(sorted(set(knobs) - unused_parameters(mother)), random.randint(1, 2))
        return {**mother, **{name: change(mother[name], knobs[name], random) for name in names}}


def cross(mother: Values, father: Values, random: Random) -> Values:
    """Each part from one of the two: a reach with its lengths, a schedule with its factor, scales, layers."""
    return {name: values[name] for part in PARTS for values in [random.choice((mother, father))] for name in part}


def unused_parameters(values: Values) -> set[str]:
    """The parameters that the chosen methods do not read; a change of them would be none."""
    names = {"discount"} if values["layout"] != "all_whole" else {"local", "window", "sinks"}
    names |= {"as_trained": {"stretch", "shape"}, "ntk": {"shape"}}.get(values["schedule"], set())
    return names | ({"near", "room", "discount"} if values["reach"] == WHOLE else set())


def draw(knob: BaseDistribution, random: Random) -> Any:
    """A random value of a knob."""
    match knob:
        case FloatDistribution():
            return _value_at(random.random(), knob)
        case IntDistribution():
            return random.randint(knob.low, knob.high)
        case CategoricalDistribution():
            return random.choice(knob.choices)
    raise unknown_knob(knob)


def change(value: Any, knob: BaseDistribution, random: Random) -> Any:
    """Another value of a knob: a number nearby, or another choice."""
    match knob:
        case FloatDistribution():
            ends = _warp(knob.low, knob), _warp(knob.high, knob)
            place = (_warp(value, knob) - ends[0]) / (ends[1] - ends[0])
            return _value_at(place + random.gauss(0, USUAL_STEP), knob)
        case IntDistribution():
            step = max(1, round(abs(random.gauss(0, USUAL_STEP * (knob.high - knob.low)))))
            return min(max(value + random.choice((-step, step)), knob.low), knob.high)
        case CategoricalDistribution():
            return random.choice([choice for choice in knob.choices if choice != value])
    raise unknown_knob(knob)


def _value_at(place: float, knob: FloatDistribution) -> Any:
    """The value at a place from 0 to 1 of a range, rounded."""
    low, high = _warp(knob.low, knob), _warp(knob.high, knob)
    value = low + min(max(place, 0.0), 1.0) * (high - low)
    return tidy(math.exp(value) if knob.log else value, knob)


def _warp(value: float, knob: FloatDistribution) -> float:
    return math.log(value) if knob.log else value


def _discount_far(near: int, strength: float) -> tuple[Bias, ...]:
    """A discount of the keys beyond the reach's window or chunk."""
    return (FarDiscount(window=near, strength=strength),) if strength else ()


def _local(goal: Goal, values: Values) -> Reach:
    """The reach of local layers: a window, and the first tokens within the trained length."""
    window = max(1, int(goal.facts.trained_len * values["window"]))
    sinks = min(values["sinks"], goal.facts.trained_len - window)
    return Sinks(window=window, n_sink=sinks) if sinks else Window(window=window)
