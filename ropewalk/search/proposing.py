"""Which space is next, and which of its values: a function of what has been tried and of the turn, nothing else.

A search that was killed therefore goes on as if it had not been.
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
from ropewalk.extension import Extension
from ropewalk.search.goal import Goal
from ropewalk.search.spaces import ALL, HandSet, Space
from ropewalk.search.spaces.signature import Values
from ropewalk.search.tried import EXTENSION, SPACE, MeasuredTrial, ranked, tried

SPACES = {space.name: space for space in ALL}
NAMES = CategoricalDistribution(tuple(SPACES))
ATTEMPTS = 200  # at something new that fits

Takes = Callable[[Extension], bool]


class Proposing(BaseSampler):
    """Optuna's sampler: it is asked for all values of a trial at once."""

    def __init__(self, goal: Goal, takes: Takes) -> None:
        self.goal, self.takes = goal, takes
        self.spaces, self.seeds = open_spaces(goal, takes), seeds(goal, takes)

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Every knob there is: which are turned is decided when values are drawn."""
        knobs = {f"{each.name}.{name}": knob for each in ALL for name, knob in each.knobs(self.goal).items()}
        return {SPACE: NAMES, **knobs}

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """A space and its values."""
        space, values = self.proposal(study, trial.number)
        return {SPACE: space.name, **{f"{space.name}.{name}": value for name, value in values.items()}}

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Never asked, since all values come together."""
        raise DoesNotFit("parameter", "one of those proposed", param_name)

    def proposal(self, study: optuna.Study, number: int) -> tuple[Space, Values]:
        """What was set by hand while any is left; then what is new and fits, of what is drawn for this turn."""
        past, seen = tried(study), taken(study, apart_from=number)
        for extension, (space, values) in self.seeds.items():
            if extension not in seen:
                return space, values
        turn = len(earlier(study, number))
        for attempt in range(ATTEMPTS):
            random = Random(f"{self.goal.seed}/{turn}/{attempt}")
            space = whose_turn(self.spaces, self.goal, past, turn + attempt)
            proposed = space.proposed(self.goal, past, random)
            drawn = made(space, self.goal, proposed) if proposed else None
            if proposed and drawn and drawn not in seen and self.takes(drawn):
                return space, proposed
        raise DoesNotFit("proposals", "new", f"{ATTEMPTS} that were tried before, or that do not fit")


def open_spaces(goal: Goal, takes: Takes) -> list[Space]:
    """Those from which something can be proposed, as far as their examples tell."""
    found = [space for space in ALL if not isinstance(space, HandSet) and _fits(space, goal, takes)]
    if not found:
        raise DoesNotFit("deployable", "an engine that can load an extension of this model", goal.deployable)
    return found


def seeds(goal: Goal, takes: Takes) -> dict[Extension, tuple[Space, Values]]:
    """What is tried first: what was set by hand, and the example of each space, as far as they fit."""
    found: dict[Extension, tuple[Space, Values]] = {}
    for space in ALL:
        for values in space.seeds(goal):
            extension = made(space, goal, values)
            if extension and extension not in found and takes(extension):
                found[extension] = space, values
    return found


def whose_turn(spaces: Sequence[Space], goal: Goal, past: Sequence[MeasuredTrial], turn: int) -> Space:
    """Every other turn goes to the spaces that can better the best so far, the rest to all; both in a circle."""
    leaders = ranked(past)[:1] if turn % 2 == 0 else []
    bettering = [space for space in spaces if any(space.betters(goal, each.extension) for each in leaders)]
    circle = bettering or spaces
    return circle[turn // 2 % len(circle)]


def made(space: Space, goal: Goal, values: Values) -> Extension | None:
    """The extension, or nothing where its own rules refuse it."""
    try:
        return space.extension(goal, values)
    except RopewalkError:
        return None


def earlier(study: optuna.Study, number: int) -> list[FrozenTrial]:
    """All trials before this one but those that were interrupted."""
    return [each for each in standing(study) if each.number < number]


def taken(study: optuna.Study, apart_from: int | None = None) -> set[Extension]:
    """What was tried, or is being tried by others."""
    others = (each for each in standing(study) if each.number != apart_from)
    return {Extension.from_json(each.user_attrs[EXTENSION]) for each in others if EXTENSION in each.user_attrs}


def standing(study: optuna.Study) -> list[FrozenTrial]:
    """Every trial that was not interrupted."""
    return [each for each in study.get_trials(deepcopy=False) if each.state != TrialState.FAIL]


def _fits(space: Space, goal: Goal, takes: Takes) -> bool:
    example = made(space, goal, space.example(goal))
    return example is not None and takes(example)
