"""A space of extensions: its knobs, and the extension that their values make."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from random import Random
from typing import Any, ClassVar

import optuna
from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.trial import TrialState

from ropewalk.extension import Extension
from ropewalk.frequencies import Frequencies
from ropewalk.scales import Scale, Temperature
from ropewalk.search.goal import Goal
from ropewalk.search.tried import MeasuredTrial

Values = dict[str, Any]

STARTUP = 6  # draws at random before a model of what is good makes sense
DIGITS = 4  # significant ones: more would tell apart what is the same


class Space(ABC):
    """Where to look, and how to go on from what was found."""

    name: ClassVar[str]

    @abstractmethod
    def knobs(self, goal: Goal) -> dict[str, BaseDistribution]:
        """What can be turned, and how far."""

    @abstractmethod
    def example(self, goal: Goal) -> Values:
        """Values that somebody has published, or nearly."""

    @abstractmethod
    def extension(self, goal: Goal, values: Values) -> Extension:
        """What the values make."""

    def seeds(self, goal: Goal) -> list[Values]:
        """What is tried before anything is proposed."""
        return [self.example(goal)]

    def betters(self, goal: Goal, extension: Extension) -> bool:
        """Whether what is proposed here is of the kind of an extension, and may improve on it."""
        return False

    def proposed(self, goal: Goal, past: Sequence[MeasuredTrial], random: Random) -> Values | None:
        """The next values, or nothing where there are none now.

        By Optuna's tree of Parzen estimators, from what this space has given so far.
        """
        sampler = optuna.samplers.TPESampler(seed=random.randrange(2**31), n_startup_trials=STARTUP)
        ledger = optuna.create_study(sampler=sampler)
        knobs = self.knobs(goal)
        ledger.add_trials([_entry(each, knobs) for each in past if each.space == self.name])
        return {name: _tidy(value, knobs[name]) for name, value in ledger.ask(knobs).params.items()}


def _entry(each: MeasuredTrial, knobs: dict[str, BaseDistribution]) -> optuna.trial.FrozenTrial:
    """What was tried, in Optuna's words."""
    state = TrialState.COMPLETE if each.figures else TrialState.PRUNED
    value = each.figures.loss if each.figures else None
    return optuna.trial.create_trial(
        state=state,
        value=value,
        params=each.values,
        distributions=knobs,
        intermediate_values=each.rungs,
        constraints=each.violations,
    )


def _tidy(value: Any, knob: BaseDistribution) -> Any:
    """A number as people would write it down, within its bounds."""
    if not isinstance(knob, FloatDistribution):
        return value
    return min(max(float(f"{value:.{DIGITS}g}"), knob.low), knob.high)


def overshoot() -> FloatDistribution:
    """A schedule's factor over the one that the target needs: some reach only half of theirs."""
    return FloatDistribution(0.5, 2.0, log=True)


def temperature() -> FloatDistribution:
    """What all logits are multiplied by."""
    return FloatDistribution(0.7, 2.5, log=True)


def yarn_temperature(goal: Goal) -> float:
    """YaRN's own: (0.1 ln s + 1)^2."""
    return (0.1 * math.log(goal.factor) + 1) ** 2


def stretched(goal: Goal, values: Values) -> float:
    """The factor that an overshoot makes."""
    return max(1.0, goal.factor * float(values["overshoot"]))


def scheduled(frequencies: Frequencies, value: float) -> Extension:
    """A schedule with a temperature."""
    scales: tuple[Scale, ...] = () if value == 1 else (Temperature(value=value),)
    return Extension(frequencies=frequencies, scales=scales)
