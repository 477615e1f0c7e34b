"""Dynamic schedules: short texts keep the base model's numbers."""

from __future__ import annotations

from typing import Any, ClassVar

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution

from ropewalk.extension.extension import Extension
from ropewalk.methods.frequencies import NTK, ByParts, Dynamic, NTKMixed
from ropewalk.methods.scales import DynamicTemperature, LogN, Scale, YarnTemperature
from ropewalk.search.goal import Goal
from ropewalk.search.spaces.signature import Space, Values


class DynamicSchedules(Space):
    """By parts, NTK or NTK mixed; YaRN's temperature with a free coefficient; with or without log-n."""

    name: ClassVar[str] = "dynamic"

    def knobs(self, goal: Goal) -> dict[str, BaseDistribution]:
        return {
            "inner": CategoricalDistribution(("by_parts", "ntk_mixed", "ntk")),
            "low_turns": FloatDistribution(0.25, 8.0, log=True),
            "span": FloatDistribution(1.5, 64.0, log=True),
            "power": FloatDistribution(0.0, 4.0),
            "coefficient": FloatDistribution(0.0, 0.3),
            "log_n": CategoricalDistribution((False, True)),
        }

    def example(self, goal: Goal) -> Values:
        turns = {"low_turns": 1.0, "span": 32.0, "power": 0.625}
        return {"inner": "by_parts", **turns, "coefficient": 0.1, "log_n": False}

    def extension(self, goal: Goal, values: Values) -> Extension:
        warmer = YarnTemperature(factor=1, coefficient=values["coefficient"])
        scales: tuple[Scale, ...] = (DynamicTemperature(inner=warmer),)
        return Extension(frequencies=Dynamic(inner=_inner(values)), scales=scales + (LogN(),) * bool(values["log_n"]))

    def betters(self, goal: Goal, extension: Extension) -> bool:
        """Dynamic schedules without a reach."""
        return isinstance(extension.theta, Dynamic) and extension.reach is None


def _inner(values: Values) -> Any:
    low = values["low_turns"]
    if values["inner"] == "by_parts":
        return ByParts(factor=1, low_turns=low, high_turns=low * values["span"])
    return NTK(factor=1) if values["inner"] == "ntk" else NTKMixed(factor=1, power=values["power"])
