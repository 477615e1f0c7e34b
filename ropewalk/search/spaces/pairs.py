"""A divisor for every pair, none smaller than that of a faster pair; bred from the best static schedules so far.

    theta'_i = theta_i / factor^share_i,   share_0 <= share_1 <= ... <= share_(d/2-1)

Source: the space of Ding et al. 2024, arXiv:2402.13753, sec. 3.2, and its monotone constraint.

Deviations: genes are shares of the factor's logarithm, so that one step means the same at every factor; children are
made monotone instead of drawn until they are; a crossing takes a whole run of pairs from the second parent, where the
authors' returns at the first change; the temperature is a gene; and every static schedule, whatever space it comes
from, can be a parent.
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
from ropewalk.extension import Extension
from ropewalk.frequencies import LongRoPE
from ropewalk.frequencies.signature import trained
from ropewalk.hf.runtime.static_schedule import constant_scale, static_table
from ropewalk.search.goal import Goal
from ropewalk.search.spaces.parts import Parts
from ropewalk.search.spaces.signature import Space, Values, scheduled, temperature
from ropewalk.search.tried import MeasuredTrial, ranked

MOST = 1.5  # share: the factor to this power
PARENTS = 8
STEPS = (0.01, 0.2)  # of a share: from fine to coarse, drawn on a scale of logarithms
ROUNDED = 1e-3  # of a share: what decimals make of equal ones
WARMER = 0.05  # the usual change of the temperature's logarithm
CROSSED = 0.5  # of children have two parents
Genes = tuple[float, ...]


class Pairs(Space):
    """Static, and lowered by `export` to what engines read as longrope."""

    name: ClassVar[str] = "pairs"

    def knobs(self, goal: Goal) -> dict[str, BaseDistribution]:
        return {**{name: FloatDistribution(0.0, MOST) for name in _names(goal)}, "temperature": temperature()}

    def example(self, goal: Goal) -> Values:
        parts = Parts()
        return values_of(goal, *genes(goal, parts.extension(goal, parts.example(goal))))

    def seeds(self, goal: Goal) -> list[Values]:
        """None: it begins with what others have found."""
        return []

    def extension(self, goal: Goal, values: Values) -> Extension:
        divisors = tuple(round(goal.factor ** values[name], 6) for name in _names(goal))
        return scheduled(LongRoPE(long=divisors, short=divisors), values["temperature"])

    def betters(self, goal: Goal, extension: Extension) -> bool:
        """Whatever is static and monotone."""
        found = static_genes(goal, extension)
        return found is not None and all(later >= share - ROUNDED for share, later in pairwise(found[0]))

    def proposed(self, goal: Goal, past: Sequence[MeasuredTrial], random: Random) -> Values:
        """A child of the best."""
        found = parents(goal, past) or [genes(goal, self.extension(goal, self.example(goal)))]
        mother, warmth = _chosen(found, random)
        if random.random() < CROSSED:
            mother = crossed(mother, _chosen(found, random)[0], random)
        warmth *= math.exp(random.gauss(0, WARMER)) if random.random() < CROSSED else 1
        return values_of(goal, mutated(mother, random), warmth)


def parents(goal: Goal, past: Sequence[MeasuredTrial]) -> list[tuple[Genes, float]]:
    """The best static schedules that were measured wholly, as genes and temperatures; what keeps to the goal first."""
    found = filter(None, (static_genes(goal, each.extension) for each in ranked(past)))
    return [(monotone(shares), warmth) for shares, warmth in islice(found, PARENTS)]


def genes(goal: Goal, extension: Extension) -> tuple[Genes, float]:
    """A static extension as shares that never fall, and a temperature; refused where it is none."""
    shares, warmth = read_genes(goal, extension)
    return monotone(shares), warmth


def read_genes(goal: Goal, extension: Extension) -> tuple[Genes, float]:
    """The shares as they are."""
    own = extension.at_layer(0, goal.facts)
    if extension.layers:
        raise DoesNotFit("layers", "all alike in a table", [key for key, _ in extension.overrides])
    warmth = constant_scale(own, goal.facts)
    table = static_table(own, own.ground(goal.facts))
    times = torch.where(table > 0, trained(goal.facts) / table, 1.0)  # a pair that stands still cannot be slowed
    stretch = times.log() / math.log(goal.factor)
    return tuple(stretch.clamp(0, MOST).tolist()), warmth


def static_genes(goal: Goal, extension: Extension) -> tuple[Genes, float] | None:
    """The shares of what is static, nothing of anything else."""
    try:
        return read_genes(goal, extension)
    except DoesNotFit:
        return None


def monotone(shares: Sequence[float]) -> Genes:
    """The nearest that never falls: midway between what no faster pair exceeds and what no slower pair undercuts.

    A running maximum alone would let a share that rose carry all slower pairs along, and one that fell none.
    """
    above = accumulate(shares, max)
    below = reversed(list(accumulate(reversed(shares), min)))
    return tuple((high + low) / 2 for high, low in zip(above, below, strict=True))


def crossed(mother: Genes, father: Genes, random: Random) -> Genes:
    """The mother with a run of pairs from the father."""
    first, last = sorted(random.sample(range(len(mother) + 1), 2))
    return monotone([*mother[:first], *father[first:last], *mother[last:]])


def mutated(mother: Genes, random: Random) -> Genes:
    """One to three runs of pairs moved together: pairs beside each other matter alike."""
    shares = list(mother)
    for _ in range(random.randint(1, 3)):
        first, last = sorted(random.sample(range(len(shares) + 1), 2))
        step = random.gauss(0, math.exp(random.uniform(*map(math.log, STEPS))))
        shares[first:last] = [min(max(share + step, 0.0), MOST) for share in shares[first:last]]
    return monotone(shares)


def _chosen(found: Sequence[tuple[Genes, float]], random: Random) -> tuple[Genes, float]:
    """A parent, the better the likelier."""
    return found[min(random.randrange(len(found)), random.randrange(len(found)))]


def _names(goal: Goal) -> list[str]:
    return [f"share_{pair:03}" for pair in range(goal.facts.rotating // 2)]


def values_of(goal: Goal, shares: Genes, warmth: float) -> Values:
    """Genes as the values of knobs."""
    knob = temperature()
    rounded = {name: round(share, 4) for name, share in zip(_names(goal), shares, strict=True)}
    return {**rounded, "temperature": round(min(max(warmth, knob.low), knob.high), 4)}
