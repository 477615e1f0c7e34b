"""YaRN with free values: the two thresholds, the factor, the temperature."""

from __future__ import annotations

from typing import ClassVar

from optuna.distributions import BaseDistribution, FloatDistribution

from ropewalk.extension.extension import Extension
from ropewalk.methods.frequencies import ByParts
from ropewalk.search.goal import Goal
from ropewalk.search.spaces.signature import (
    Space,
    Values,
    overshoot,
    schedule_with_temperature,
    stretched_factor,
    temperature,
    yarn_temperature,
)


class Parts(Space):
    """Static; every engine knows it by name."""

    name: ClassVar[str] = "parts"

    def knobs(self, goal: Goal) -> dict[str, BaseDistribution]:
        turns = {
            "low_turns": FloatDistribution(0.25, 8.0, log=True),
            "span": FloatDistribution(1.5, 64.0, log=True),  # high over low turns
        }
        return {**turns, "overshoot": overshoot(), "temperature": temperature()}

    def example(self, goal: Goal) -> Values:
        return {"low_turns": 1.0, "span": 32.0, "overshoot": 1.0, "temperature": yarn_temperature(goal)}

    def seeds(self, goal: Goal) -> list[Values]:
        """None: YaRN is a hand-set extension."""
        return []

    def extension(self, goal: Goal, values: Values) -> Extension:
        low = values["low_turns"]
        parts = ByParts(factor=stretched_factor(goal, values), low_turns=low, high_turns=low * values["span"])
        return schedule_with_temperature(parts, values["temperature"])
