"""A divisor for every pair, none smaller than that of a faster pair; by evolution from the best static schedules.

    theta'_i = theta_i / factor^share_i,   share_0 <= share_1 <= ... <= share_(d/2-1)

Source: the space of Ding et al. 2024, arXiv:2402.13753, sec. 3.2, and its monotone constraint.

Deviations: genes are shares of the factor's logarithm, so that a step means the same at every factor; children are made
monotone instead of being redrawn until they are; a crossover takes a whole run of pairs from the second parent, where
the authors' code returns at the first change; the temperature is a gene; and every static schedule, from whatever
space, can be a parent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, islice, pairwise
from random import Random
from typing import ClassVar

import torch
from optuna.distributions import BaseDistribution, FloatDistribution

from ropewalk.errors import DoesNotFit
from ropewalk.extension.extension import Extension
from ropewalk.extension.static import constant_scale, static_table
from ropewalk.methods.frequencies import LongRoPE
from ropewalk.methods.frequencies.frequencies import trained_theta
from ropewalk.search.goal import Goal
from ropewalk.search.spaces.parts import Parts
from ropewalk.search.spaces.space import Space, Values, draw_parent, schedule_with_temperature, temperature
from ropewalk.search.trials import MeasuredTrial, rank

MOST_SHARE = 1.5  # share: the factor to this power
PAIR_PARENTS = 8
STEPS = (0.01, 0.2)  # of a share: from fine to coarse, drawn log-uniformly
ROUNDED = 1e-3  # of a share: rounding error of equal ones
TEMPERATURE_STEP = 0.05  # the usual change of the temperature's logarithm
CROSSED = 0.5  # share of children with two parents
Genes = tuple[float, ...]


class Pairs(Space):
    """Static; `export` writes it as the longrope type of engines."""

    name: ClassVar[str] = "pairs"

    def knobs(self, goal: Goal) -> dict[str, BaseDistribution]:
        return {**{name: FloatDistribution(0.0, MOST_SHARE) for name in names(goal)}, "temperature": temperature()}

    def example(self, goal: Goal) -> Values:
        parts = Parts()
        return values_of(goal, *genes(goal, parts.extension(goal, parts.example(goal))))

    def seeds(self, goal: Goal) -> list[Values]:
        """None: it starts from the results of other spaces."""
        return []

    def extension(self, goal: Goal, values: Values) -> Extension:
        divisors = tuple(round(goal.factor ** values[name], 6) for name in names(goal))
        return schedule_with_temperature(LongRoPE(long=divisors, short=divisors), values["temperature"])

    def betters(self, goal: Goal, extension: Extension) -> bool:
        """Static and monotone extensions."""
        static = static_genes(goal, extension)
        return static is not None and all(later >= share - ROUNDED for share, later in pairwise(static[0]))

    def proposed(self, goal: Goal, past: Sequence[MeasuredTrial], random: Random) -> Values:
        """A child of the best schedules."""
        candidates = parents(goal, past) or [genes(goal, self.extension(goal, self.example(goal)))]
        mother, warmth = breed(candidates, random)
        warmth *= math.exp(random.gauss(0, TEMPERATURE_STEP)) if random.random() < CROSSED else 1
        return values_of(goal, mutate(mother, random), warmth)


def parents(goal: Goal, past: Sequence[MeasuredTrial]) -> list[tuple[Genes, float]]:
    """The best static schedules of completed trials, as genes and temperatures; those within the goal first."""
    static = filter(None, (static_genes(goal, trial.extension) for trial in rank(past)))
    return [(monotone(shares), warmth) for shares, warmth in islice(static, PAIR_PARENTS)]


def genes(goal: Goal, extension: Extension) -> tuple[Genes, float]:
    """A static extension as shares that never fall, and a temperature; others are refused."""
    shares, warmth = read_genes(goal, extension)
    return monotone(shares), warmth


def read_genes(goal: Goal, extension: Extension) -> tuple[Genes, float]:
    """A static extension as shares, monotone or not, and a temperature."""
    layer = extension.at_layer(0, goal.facts)
    if extension.layers:
        raise DoesNotFit("layers", "all alike, so that one table fits", [key for key, _ in extension.layer_items])
    warmth = math.prod(constant_scale(layer, goal.facts))
    table = static_table(layer, layer.builds_on(goal.facts))
    times = torch.where(
        table > 0, trained_theta(goal.facts) / table, 1.0
    )  # a pair that is not rotated cannot be slowed
    stretch = times.log() / math.log(goal.factor)
    return tuple(stretch.clamp(0, MOST_SHARE).tolist()), warmth


def static_genes(goal: Goal, extension: Extension) -> tuple[Genes, float] | None:
    """The genes of a static extension, None of any other."""
    try:
        return read_genes(goal, extension)
    except DoesNotFit:
        return None


def monotone(shares: Sequence[float]) -> Genes:
    """Shares that never fall, midway between the running maximum and the running minimum from the end.

    A running maximum alone would let a share that rose raise all slower pairs, and one that fell change none.
    """
    above = accumulate(shares, max)
    below = reversed(list(accumulate(reversed(shares), min)))
    return tuple((high + low) / 2 for high, low in zip(above, below, strict=True))


def cross(mother: Genes, father: Genes, random: Random) -> Genes:
    """The first parent with a run of pairs from the second."""
    first, last = sorted(random.sample(range(len(mother) + 1), 2))
    return monotone([*mother[:first], *father[first:last], *mother[last:]])


def mutate(mother: Genes, random: Random) -> Genes:
    """One to three runs of pairs moved together: neighbouring pairs have similar effects."""
    shares = list(mother)
    for _ in range(random.randint(1, 3)):
        first, last = sorted(random.sample(range(len(shares) + 1), 2))
        step = random.gauss(0, math.exp(random.uniform(*map(math.log, STEPS))))
        shares[first:last] = [min(max(share + step, 0.0), MOST_SHARE) for share in shares[first:last]]
    return monotone(shares)


def breed(candidates: Sequence[tuple[Genes, float]], random: Random) -> tuple[Genes, float]:
    """A parent, or one crossed with another, before it is mutated; with the first one's other number."""
    mother, number = draw_parent(candidates, random)
    if random.random() < CROSSED:
        mother = cross(mother, draw_parent(candidates, random)[0], random)
    return mother, number


def names(goal: Goal) -> list[str]:
    """Of the pairs' knobs."""
    return [f"share_{pair:03}" for pair in range(goal.facts.rotating // 2)]


def values_of(goal: Goal, shares: Genes, warmth: float) -> Values:
    """Genes as the values of knobs."""
    knob = temperature()
    rounded = {name: round(share, 4) for name, share in zip(names(goal), shares, strict=True)}
    return {**rounded, "temperature": round(min(max(warmth, knob.low), knob.high), 4)}
