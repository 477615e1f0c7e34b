"""Reaches, composed with a scale and a mild schedule."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar, NamedTuple

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution

from ropewalk.extension.extension import Extension
from ropewalk.methods.frequencies import ByParts
from ropewalk.methods.reach import DualChunk, LeakyReRoPE, Reach, ReRoPE, ReRoPEByParts, SelfExtend
from ropewalk.methods.scales import LogN, Scale, Temperature
from ropewalk.search.goal import Goal
from ropewalk.search.spaces.signature import Space, Values

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
        return extension.reach is not None and not extension.layers
