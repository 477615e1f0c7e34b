"""The search loop: propose an extension, measure it while it is worth it, record it. Many processes share a study."""

from __future__ import annotations

from collections.abc import Callable, Collection

import optuna
from optuna.trial import Trial, TrialState

from ropewalk.errors import DoesNotFit, RopewalkError
from ropewalk.extension.extension import Extension
from ropewalk.search.goal import Goal, worst_if_unknown
from ropewalk.search.objective import Objective
from ropewalk.search.proposals import known_extensions, uninterrupted_trials
from ropewalk.search.spaces.descent import Descent, direction
from ropewalk.search.studies import give_up, next_trial, storing
from ropewalk.search.trials import (
    EXTENSION,
    FIGURES,
    HAND_SET,
    REFUSED,
    MeasuredTrial,
    best,
    direction_of,
    finished_trials,
    rank,
    read,
)

# Weight of damage beyond the limit, which is cheap to measure, on every rung: else trials within the limit would be
# dropped for a higher loss than those beyond it.
DAMAGE_WEIGHT = 10.0

Watch = Callable[[MeasuredTrial], None]


def ignore_trial(_: MeasuredTrial) -> None:
    """The default watcher does nothing."""


class OutOfTime(Exception):
    """The budget is spent; raised between two texts."""


def search(
    study: optuna.Study,
    goal: Goal,
    objective: Objective,
    *,
    trials: int | None = None,
    watch: Watch = ignore_trial,
    leads: bool = True,
) -> bool:
    """Measure trial after trial, until there are `trials` or time is up; True where it was interrupted.

    Ctrl-C ends the search and keeps its trials. One of several workers `leads`: it computes gradients for steps.
    """
    by_hand = getattr(study.sampler, "seeds", {})
    leads = leads and any(isinstance(space, Descent) for space in getattr(study.sampler, "spaces", ()))
    try:
        with storing(study.study_name):
            while trials is None or len(finished_trials(study)) < trials:
                if leads:
                    look_around(study, goal, objective, by_hand)
                run_trial(study, goal, objective, by_hand, watch)
    except OutOfTime:
        return False
    except KeyboardInterrupt:
        return True
    return False


def look_around(study: optuna.Study, goal: Goal, objective: Objective, by_hand: Collection[Extension]) -> None:
    """Gradients at the best so far, where it is a static table and all hand-set extensions have been tried."""
    left = set(by_hand) - known_extensions(study)
    for leader in [] if left else rank(finished_trials(study))[:1]:
        name = direction_of(leader.number)
        if name not in study.user_attrs and Descent().betters(goal, leader.extension):
            slopes = objective.slopes(leader.extension)
            study.set_user_attr(name, [] if slopes is None else direction(slopes))


def run_trial(
    study: optuna.Study,
    goal: Goal,
    objective: Objective,
    by_hand: Collection[Extension] = (),
    watch: Watch = ignore_trial,
) -> None:
    """Run one trial; it counts when it is finished, and is dropped when it is interrupted."""
    trial, space, values = next_trial(study, goal)
    extension = space.extension(goal, values)
    trial.set_user_attr(EXTENSION, extension.to_json())
    trial.set_user_attr(HAND_SET, extension in by_hand)
    if _another_has(study, trial, extension):
        study.tell(trial, state=TrialState.FAIL)
        return
    try:
        state = _measure(trial, goal, objective, extension)
    except RopewalkError as refused:
        trial.set_user_attr(REFUSED, str(refused))
        study.tell(trial, state=TrialState.PRUNED)
        return
    except BaseException:
        give_up(study, _freeze(study, trial))
        raise
    watch(read(study.tell(trial, state, state=TrialState.COMPLETE if state is not None else TrialState.PRUNED)))


def _measure(trial: Trial, goal: Goal, objective: Objective, extension: Extension) -> float | None:
    """The loss, or None where the trial fell behind."""
    limit = goal.max_damage
    harm = 0.0 if limit is None else max(0.0, worst_if_unknown(objective.damage(extension) - limit))
    for step, loss in enumerate(objective.rungs(extension)):
        trial.report(loss + DAMAGE_WEIGHT * harm, step)
        if trial.should_prune():
            return None
    figures = objective.figures(extension)
    for name, violation in goal.violations(figures).items():
        trial.set_constraint(name, violation)
    trial.set_user_attr(FIGURES, figures._asdict())
    return figures.loss


def _another_has(study: optuna.Study, trial: Trial, extension: Extension) -> bool:
    """Whether another worker is at the same extension. Both write before they look, so one of them notices."""
    stored = extension.to_json()
    others = [other for other in uninterrupted_trials(study) if other.number != trial.number]
    return any(other.user_attrs.get(EXTENSION) == stored for other in others)


def _freeze(study: optuna.Study, trial: Trial) -> optuna.trial.FrozenTrial:
    return next(frozen for frozen in study.get_trials(deepcopy=False) if frozen.number == trial.number)


def winner(study: optuna.Study, goal: Goal) -> MeasuredTrial:
    """The best trial that keeps to the goal, or an error that says how far the goal is out of reach."""
    trials = finished_trials(study)
    chosen = best(trials)
    if chosen is not None:
        return chosen
    whole = [trial for trial in trials if trial.figures]
    if not whole:
        raise DoesNotFit("budget", "enough to measure one extension", f"{len(trials)} begun", remedy="raise --budget")
    nearest = rank(whole)[0]
    broken = {name: by for name, by in nearest.violations.items() if by > 0}
    names = " and ".join(broken)
    reached = ", ".join(f"{_reached_number(goal, name, by):.4g}" for name, by in broken.items())
    remedy = f"of {len(whole)} extensions the nearest has {reached}; loosen the goal, or search longer"
    raise DoesNotFit(names, "reachable", ", ".join(f"{getattr(goal, name):g}" for name in broken), remedy=remedy)


def _reached_number(goal: Goal, name: str, broken_by: float) -> float:
    limit = float(getattr(goal, name))
    return limit - broken_by if name.startswith("min") else limit + broken_by
