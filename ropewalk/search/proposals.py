"""Which space is next, and which of its values: a function of past trials and of the turn alone.

A search that was killed therefore resumes as if it had not been.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState

from ropewalk.errors import DoesNotFit, RopewalkError
from ropewalk.extension.extension import Extension
from ropewalk.search.conditions import SCHEDULES
from ropewalk.search.goal import Goal
from ropewalk.search.spaces import ALL, BY_NAME, FOR_LENGTHS, HandSet, Reaches, Space, WindowsBelow
from ropewalk.search.spaces.space import Values
from ropewalk.search.trials import EXTENSION, SPACE, MeasuredTrial, finished_trials, rank

ATTEMPTS = 200  # to propose something new that fits

Takes = Callable[[Extension], bool]


class Proposing(BaseSampler):
    """Optuna's sampler: it proposes all values of a trial at once."""

    def __init__(self, goal: Goal, takes: Takes) -> None:
        self.goal, self.takes = goal, takes
        self.spaces, self.seeds = open_spaces(goal, takes), seeds(goal, takes)

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """The knobs of all spaces; `sample_relative` sets those of one."""
        spaces = spaces_of(self.goal).values()
        knobs = {f"{space.name}.{name}": knob for space in spaces for name, knob in space.knobs(self.goal).items()}
        return {SPACE: names_of(self.goal), **knobs}

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """A space and its values."""
        space, values = self.proposal(study, trial.number)
        return {SPACE: space.name, **{f"{space.name}.{name}": value for name, value in values.items()}}

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Never called, since all values are proposed together."""
        raise DoesNotFit("parameter", "one of those proposed", param_name)

    def proposal(self, study: optuna.Study, number: int) -> tuple[Space, Values]:
        """First the hand-set extensions; then, drawn for this turn, one that is new and fits."""
        past, known = finished_trials(study), known_extensions(study, apart_from=number)
        for extension, (space, values) in self.seeds.items():
            if extension not in known:
                return space, values
        turn = len(trials_before(study, number))
        for attempt in range(ATTEMPTS):
            random = Random(f"{self.goal.seed}/{turn}/{attempt}")
            space = next_space(self.spaces, self.goal, past, turn + attempt)
            proposed = space.proposed(self.goal, past, random)
            drawn = extension_of(space, self.goal, proposed) if proposed else None
            if proposed and drawn and drawn not in known and self.takes(drawn):
                return space, proposed
        sentence = f"none of {ATTEMPTS} proposals is both new and fit for the model"
        raise DoesNotFit.because("proposals", sentence, remedy="end the search here, or widen the goal")


def spaces_of(goal: Goal) -> dict[str, Space]:
    """The spaces that are searched, by name: all usual ones, schedules alone, or a named one; always the hand-set."""
    named = [space for space in BY_NAME if space.name == goal.space]
    usual = (*ALL, *FOR_LENGTHS) if goal.lengths else ALL
    if goal.space == SCHEDULES:
        usual = tuple(space for space in usual if not isinstance(space, Reaches | WindowsBelow))
    chosen = [space for space in ALL if isinstance(space, HandSet)] + named if named else usual
    return {space.name: space for space in chosen}


def names_of(goal: Goal) -> CategoricalDistribution:
    """The names of these spaces, as a knob."""
    return CategoricalDistribution(tuple(spaces_of(goal)))


def open_spaces(goal: Goal, takes: Takes) -> list[Space]:
    """The spaces whose example fits."""
    spaces = [one for one in spaces_of(goal).values() if not isinstance(one, HandSet) and _fits(one, goal, takes)]
    if not spaces:
        raise DoesNotFit("deployable", "an engine that can load an extension of this model", goal.deployable)
    return spaces


def seeds(goal: Goal, takes: Takes) -> dict[Extension, tuple[Space, Values]]:
    """What is tried first: the hand-set extensions and the example of each space, as far as they fit."""
    first: dict[Extension, tuple[Space, Values]] = {}
    for space in spaces_of(goal).values():
        for values in space.seeds(goal):
            extension = extension_of(space, goal, values)
            if extension and extension not in first and takes(extension):
                first[extension] = space, values
            elif extension not in first and values.get("line") in goal.also:
                space.extension(goal, values)  # refused with its reason
                sentence = f"{values['line']} does not fit the model, the engine or the space that is searched"
                raise DoesNotFit.because("also", sentence, remedy="leave it out, or widen the conditions")
    return first


def next_space(spaces: Sequence[Space], goal: Goal, past: Sequence[MeasuredTrial], turn: int) -> Space:
    """Every other turn goes to the spaces that can improve on the best so far, the rest to all; both in rotation."""
    leaders = rank(past)[:1] if turn % 2 == 0 else []
    bettering = [space for space in spaces if any(space.betters(goal, trial.extension) for trial in leaders)]
    circle = bettering or spaces
    return circle[turn // 2 % len(circle)]


def extension_of(space: Space, goal: Goal, values: Values) -> Extension | None:
    """The extension, or None where its rules refuse it."""
    try:
        return space.extension(goal, values)
    except RopewalkError:
        return None


def trials_before(study: optuna.Study, number: int) -> list[FrozenTrial]:
    """All trials before this one, except interrupted ones."""
    return [trial for trial in uninterrupted_trials(study) if trial.number < number]


def known_extensions(study: optuna.Study, apart_from: int | None = None) -> set[Extension]:
    """What was tried, or what other workers are trying."""
    others = (trial for trial in uninterrupted_trials(study) if trial.number != apart_from)
    return {Extension.from_json(trial.user_attrs[EXTENSION]) for trial in others if EXTENSION in trial.user_attrs}


def uninterrupted_trials(study: optuna.Study) -> list[FrozenTrial]:
    """Every trial that was not interrupted."""
    return [trial for trial in study.get_trials(deepcopy=False) if trial.state != TrialState.FAIL]


def _fits(space: Space, goal: Goal, takes: Takes) -> bool:
    example = extension_of(space, goal, space.example(goal))
    return example is not None and takes(example)
