"""Different layers: a window in the lower ones, a reach over the whole text above."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from optuna.distributions import BaseDistribution, FloatDistribution, IntDistribution

from ropewalk.extension.extension import Extension
from ropewalk.methods.reach import Window
from ropewalk.search.goal import Goal
from ropewalk.search.spaces.reaches import Reaches
from ropewalk.search.spaces.signature import Space, Values

ABOVE = Reaches()


class WindowsBelow(Space):
    """The number of layers with a window, its size, and all knobs of the reaches."""

    name: ClassVar[str] = "windows_below"

    def knobs(self, goal: Goal) -> dict[str, BaseDistribution]:
        windows: dict[str, BaseDistribution] = {
            "below": IntDistribution(1, max(1, goal.facts.layers - 1)),
            "window": FloatDistribution(1 / 16, 1.0, log=True),  # as a share of the trained length
        }
        return {**windows, **ABOVE.knobs(goal)}

    def example(self, goal: Goal) -> Values:
        return {"below": max(1, goal.facts.layers // 3), "window": 0.5, **ABOVE.example(goal)}

    def extension(self, goal: Goal, values: Values) -> Extension:
        window = Extension(reach=Window(window=max(1, int(goal.facts.trained_len * values["window"]))))
        return replace(ABOVE.extension(goal, values), layers=dict.fromkeys(range(values["below"]), window))

    def betters(self, goal: Goal, extension: Extension) -> bool:
        """Extensions with different layers."""
        return bool(extension.layers)
