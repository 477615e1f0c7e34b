"""One power of the factor for every pair, for rows of every length; by evolution from the best schedules.

    theta'_i(row) = theta_i / s(row)^share_i,   share_0 <= share_1 <= ... <= share_(d/2-1)

A table for each step of the length, all from one set of powers; rows within the trained length keep the base model's.
The temperature is YaRN's with a free coefficient, (coefficient ln s(row) + 1)^2. Searched where the goal has several
lengths: at one alone a static table is as good, and cheaper.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random
from typing import ClassVar

from optuna.distributions import BaseDistribution, FloatDistribution

from ropewalk.extension.extension import Extension
from ropewalk.methods.frequencies import ByShares, Dynamic
from ropewalk.methods.scales import DynamicTemperature, YarnTemperature
from ropewalk.search.goal import Goal
from ropewalk.search.spaces.pairs import CROSSED, MOST_SHARE, PAIR_PARENTS, Genes, Pairs, breed, mutate, names, parents
from ropewalk.search.spaces.space import Space, Values
from ropewalk.search.trials import MeasuredTrial, rank

HOTTEST = 0.3  # coefficient; YaRN's is 0.1
ALIKE = Pairs()
COEFFICIENT_STEP = 0.02  # the usual change of the coefficient


class DynamicPairs(Space):
    """Genes as those of `pairs`."""

    name: ClassVar[str] = "dynamic_pairs"

    def knobs(self, goal: Goal) -> dict[str, BaseDistribution]:
        shares = {name: FloatDistribution(0.0, MOST_SHARE) for name in names(goal)}
        return {**shares, "coefficient": FloatDistribution(0.0, HOTTEST)}

    def example(self, goal: Goal) -> Values:
        """YaRN's shares and coefficient."""
        values = ALIKE.example(goal)
        return {**{name: values[name] for name in names(goal)}, "coefficient": 0.1}

    def extension(self, goal: Goal, values: Values) -> Extension:
        shares = tuple(values[name] for name in names(goal))
        warmer = YarnTemperature(factor=1, coefficient=values["coefficient"])
        return Extension(
            frequencies=Dynamic(inner=ByShares(factor=1, shares=shares)), scales=(DynamicTemperature(inner=warmer),)
        )

    def betters(self, goal: Goal, extension: Extension) -> bool:
        """Schedules of either kind without a reach."""
        return extension.reach is None and (
            isinstance(extension.frequencies_or_rope, Dynamic) or ALIKE.betters(goal, extension)
        )

    def proposed(self, goal: Goal, past: Sequence[MeasuredTrial], random: Random) -> Values:
        """A child of the best of this space, or of the best static schedules."""
        mother, coefficient = breed(self._parents(goal, past), random)
        coefficient += random.gauss(0, COEFFICIENT_STEP) if random.random() < CROSSED else 0
        shares = dict(zip(names(goal), (round(share, 4) for share in mutate(mother, random)), strict=True))
        return {**shares, "coefficient": round(min(max(coefficient, 0.0), HOTTEST), 4)}

    def _parents(self, goal: Goal, past: Sequence[MeasuredTrial]) -> list[tuple[Genes, float]]:
        mine = [trial.values for trial in rank(past) if trial.space == self.name][:PAIR_PARENTS] or [self.example(goal)]
        genes = [(tuple(values[name] for name in names(goal)), values["coefficient"]) for values in mine]
        static = [(shares, _coefficient(goal, warmth)) for shares, warmth in parents(goal, past)]
        return genes + static[: max(0, PAIR_PARENTS - len(genes))]


def _coefficient(goal: Goal, temperature: float) -> float:
    """The coefficient with which YaRN's temperature at the target is this one."""
    return (math.sqrt(max(temperature, 1.0)) - 1) / math.log(goal.factor)
