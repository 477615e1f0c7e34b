"""Spaces of few numbers: parts of a schedule, layers, reaches."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from ropewalk.extension.extension import Extension
from ropewalk.methods.frequencies import NTK, ByParts, Dynamic, NTKMixed
from ropewalk.methods.reach import DualChunk, LeakyReRoPE, Reach, ReRoPE, ReRoPEByParts, SelfExtend, Window
from ropewalk.methods.scales import DynamicTemperature, LogN, Scale, Temperature, YarnTemperature
from ropewalk.search.goal import Goal
from ropewalk.search.spaces.space import (
    Space,
    Values,
    overshoot,
    schedule_with_temperature,
    stretched_factor,
    temperature,
    yarn_temperature,
)

# Reaches, composed with a scale and a mild schedule.


NEGLIGIBLE = 1.05  # smaller stretches are left out


class ReachLengths(NamedTuple):
    """What a reach is built from."""

    near: int  # its window or chunk
    room: float  # distances beyond it, at which far keys appear
    leak: float  # distances that become one, so that the whole text has room

    @classmethod
    def of(cls, goal: Goal, values: Values) -> ReachLengths:
        """From shares of the trained length."""
        trained = goal.facts.trained_len
        near = max(1, int(trained * values["near"]))
        room = max(1.0, (trained - near) * values["room"])
        return cls(near, room, max(1.0, (goal.target_len - near) / room))


REACHES: dict[str, Callable[[ReachLengths], Reach]] = {
    "rerope": lambda lengths: ReRoPE(window=lengths.near),
    "leaky_rerope": lambda lengths: LeakyReRoPE(window=lengths.near, leak=round(lengths.leak, 3)),
    "rerope_by_parts": lambda lengths: ReRoPEByParts(window=lengths.near, leak=round(lengths.leak, 3)),
    "self_extend": lambda lengths: SelfExtend(window=lengths.near, group=math.ceil(lengths.leak)),
    "dual_chunk": lambda lengths: DualChunk(chunk=lengths.near, local=max(1, min(lengths.near - 1, int(lengths.room)))),
}
# Fixed: a study with other choices cannot be continued.
CHOICES = tuple(name for name in REACHES if name != "rerope_by_parts")


class Reaches(Space):
    """ReRoPE, leaky ReRoPE, Self-Extend or dual chunk attention; log-n or not; a temperature; by_parts to factor 4."""

    name: ClassVar[str] = "reaches"

    def knobs(self, goal: Goal) -> dict[str, BaseDistribution]:
        return {
            "reach": CategoricalDistribution(CHOICES),
            "near": FloatDistribution(1 / 16, 15 / 16),  # window or chunk, as a share of the trained length
            "room": FloatDistribution(1 / 16, 1.0),  # share of the rest of the trained length that far keys take
            "log_n": CategoricalDistribution((False, True)),
            "temperature": FloatDistribution(0.8, 1.6, log=True),
            "stretch": FloatDistribution(1.0, 4.0, log=True),
        }

    def example(self, goal: Goal) -> Values:
        return {"reach": "rerope", "near": 0.5, "room": 0.5, "log_n": True, "temperature": 1.0, "stretch": 1.0}

    def extension(self, goal: Goal, values: Values) -> Extension:
        scales: tuple[Scale, ...] = (LogN(),) * bool(values["log_n"])
        if values["temperature"] != 1:
            scales += (Temperature(value=values["temperature"]),)
        schedule = ByParts(factor=values["stretch"]) if values["stretch"] >= NEGLIGIBLE else None
        reach = REACHES[values["reach"]](ReachLengths.of(goal, values))
        return Extension(frequencies=schedule, reach=reach, scales=scales)

    def betters(self, goal: Goal, extension: Extension) -> bool:
        """Extensions with one reach in all layers."""
        return extension.reach is not None and not extension.layers and not extension.heads


# Dynamic schedules: short texts keep the base model's numbers.


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
        return isinstance(extension.frequencies_or_rope, Dynamic) and extension.reach is None


def _inner(values: Values) -> Any:
    low = values["low_turns"]
    if values["inner"] == "by_parts":
        return ByParts(factor=1, low_turns=low, high_turns=low * values["span"])
    return NTK(factor=1) if values["inner"] == "ntk" else NTKMixed(factor=1, power=values["power"])


# YaRN with free values: the two thresholds, the factor, the temperature.


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


# Different layers: a window in the lower ones, a reach over the whole text above.


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


# NTK in a mixed base: the spread of the stretching over the pairs, its amount, and the temperature.


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
