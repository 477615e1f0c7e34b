"""NTK in a mixed base: the spread of the stretching over the pairs, its amount, and the temperature."""

from __future__ import annotations

from typing import ClassVar

from optuna.distributions import BaseDistribution, FloatDistribution

from ropewalk.extension.extension import Extension
from ropewalk.methods.frequencies import NTKMixed
from ropewalk.search.goal import Goal
from ropewalk.search.spaces.signature import (
    Space,
    Values,
    overshoot,
    schedule_with_temperature,
    stretched_factor,
    temperature,
)


class Mixed(Space):
    """Static: from position interpolation (power 0) over NTK (about 1) to stretching the slowest pairs alone."""

    name: ClassVar[str] = "mixed"

    def knobs(self, goal: Goal) -> dict[str, BaseDistribution]:
        return {"power": FloatDistribution(0.0, 4.0), "overshoot": overshoot(), "temperature": temperature()}

    def example(self, goal: Goal) -> Values:
        return {"power": 0.625, "overshoot": 1.0, "temperature": 1.0}

    def extension(self, goal: Goal, values: Values) -> Extension:
        return schedule_with_temperature(
            NTKMixed(factor=stretched_factor(goal, values), power=values["power"]), values["temperature"]
        )
