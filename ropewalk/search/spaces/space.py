"""A space of extensions: its knobs, and the extension for their values."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from random import Random
from typing import Any, ClassVar, TypeVar

import optuna
from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.trial import TrialState

from ropewalk.errors import DoesNotFit
from ropewalk.extension.extension import Extension
from ropewalk.methods.frequencies import Frequencies
from ropewalk.methods.scales import Scale, Temperature
from ropewalk.search.goal import Goal
from ropewalk.search.trials import MeasuredTrial

Values = dict[str, Any]
Parent = TypeVar("Parent")

STARTUP = 6  # random draws before the estimator is used
KNOB_DIGITS = 4  # significant digits: more would distinguish what is practically equal


class Space(ABC):
    """A space, and how to propose from past trials."""

    name: ClassVar[str]

    @abstractmethod
    def knobs(self, goal: Goal) -> dict[str, BaseDistribution]:
        """The parameters and their ranges."""

    @abstractmethod
    def example(self, goal: Goal) -> Values:
        """Published values, or nearly."""

    @abstractmethod
    def extension(self, goal: Goal, values: Values) -> Extension:
        """The extension for these values."""

    def seeds(self, goal: Goal) -> list[Values]:
        """Values to try before anything is proposed."""
        return [self.example(goal)]

    def betters(self, goal: Goal, extension: Extension) -> bool:
        """Whether this space holds extensions of the same kind, and may improve on this one."""
        return False

    def proposed(self, goal: Goal, past: Sequence[MeasuredTrial], random: Random) -> Values | None:
        """The next values, or None.

        By Optuna's tree-structured Parzen estimator, from the past trials of this space.
        """
        sampler = optuna.samplers.TPESampler(seed=random.randrange(2**31), n_startup_trials=STARTUP)
        ledger = optuna.create_study(sampler=sampler)
        knobs = self.knobs(goal)
        ledger.add_trials([_entry(trial, knobs) for trial in past if trial.space == self.name])
        return {name: tidy(value, knobs[name]) for name, value in ledger.ask(knobs).params.items()}


def _entry(trial: MeasuredTrial, knobs: dict[str, BaseDistribution]) -> optuna.trial.FrozenTrial:
    """A past trial as an Optuna trial."""
    state = TrialState.COMPLETE if trial.figures else TrialState.PRUNED
    value = trial.figures.loss if trial.figures else None
    return optuna.trial.create_trial(
        state=state,
        value=value,
        params=trial.values,
        distributions=knobs,
        intermediate_values=trial.rungs,
        constraints=trial.violations,
    )


def tidy(value: Any, knob: BaseDistribution) -> Any:
    """A number rounded to a few digits, within its bounds."""
    if not isinstance(knob, FloatDistribution):
        return value
    return min(max(float(f"{value:.{KNOB_DIGITS}g}"), knob.low), knob.high)


def draw_parent(parents: Sequence[Parent], random: Random) -> Parent:
    """A random one of parents in order, the best first; better ones are more likely."""
    return parents[min(random.randrange(len(parents)), random.randrange(len(parents)))]


def unknown_knob(knob: BaseDistribution) -> DoesNotFit:
    """The error about a knob of no kind that is known."""
    return DoesNotFit("knob", "a number, a whole number or a choice", type(knob).__name__)


def overshoot() -> FloatDistribution:
    """A schedule's factor over the one that the target needs: some schedules cover only half of theirs."""
    return FloatDistribution(0.5, 2.0, log=True)


def temperature() -> FloatDistribution:
    """The factor of all logits."""
    return FloatDistribution(0.7, 2.5, log=True)


def yarn_temperature(goal: Goal) -> float:
    """YaRN's temperature: (0.1 ln s + 1)^2."""
    return (0.1 * math.log(goal.factor) + 1) ** 2


def stretched_factor(goal: Goal, values: Values) -> float:
    """The factor with its overshoot."""
    return max(1.0, goal.factor * float(values["overshoot"]))


def schedule_with_temperature(frequencies: Frequencies, value: float) -> Extension:
    """A schedule with a temperature."""
    scales: tuple[Scale, ...] = () if value == 1 else (Temperature(value=value, over="rotating"),)
    return Extension(frequencies=frequencies, scales=scales)
