"""The study of a search, and which extensions go on from rung to rung."""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.exceptions import StorageInternalError
from optuna.pruners import BasePruner
from optuna.storages import BaseStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, Trial, TrialState
from sqlalchemy.exc import SQLAlchemyError

from ropewalk.errors import DoesNotFit, RopewalkError, Unreadable
from ropewalk.files import why
from ropewalk.folders import refuse_full_disk
from ropewalk.measure.comparison.halving import MAX_GAP
from ropewalk.search.goal import Goal
from ropewalk.search.proposals import Proposing, Takes, names_of, spaces_of
from ropewalk.search.spaces import Space
from ropewalk.search.spaces.space import Values, unknown_knob
from ropewalk.search.trials import HAND_SET, SPACE, finished_trials

optuna.logging.set_verbosity(optuna.logging.WARNING)  # trials are reported by fit itself

# Which trials continue: successive halving over rungs of more and more texts.
#
# A proposal continues where it is among the best third of all trials on its rung. Hand-set extensions are the ones to
# beat, so they continue up to MAX_GAP behind the best.
#
# Source: asynchronous successive halving, Li et al. 2020, arXiv:1810.05934. Deviation from Optuna's pruner of that
# name: interrupted trials do not count, so that a search that is killed and resumed ends where it would have ended.


KEPT_ONE_IN = 3  # one trial in so many continues


class Halving(BasePruner):
    """Optuna's pruner, called after each rung."""

    def prune(self, study: optuna.Study, trial: FrozenTrial) -> bool:
        """Whether to stop the trial here."""
        step = trial.last_step
        if step is None:
            return False
        loss = trial.intermediate_values[step]
        rivals = [
            other.intermediate_values[step]
            for other in study.get_trials(deepcopy=False)
            if other.state != TrialState.FAIL and other.number != trial.number and step in other.intermediate_values
        ]
        return falls_behind(loss, rivals, by_hand=bool(trial.user_attrs.get(HAND_SET)))


def falls_behind(loss: float, rivals: list[float], *, by_hand: bool) -> bool:
    """Whether a loss is too high beside those of others on the same texts."""
    if not math.isfinite(loss):
        return True
    rivals = [rival for rival in rivals if math.isfinite(rival)]  # NaN, below nothing, would protect all it leads
    if by_hand:
        return bool(rivals) and loss > min(rivals) + MAX_GAP
    return sum(rival < loss for rival in rivals) >= max(1, (len(rivals) + 1) // KEPT_ONE_IN)


# The study that all workers share, in any storage of Optuna's: one model, one text, one goal.


AGAIN = "make room and start again; the search resumes"
MARKS, OWNER = "marks", "owner"


def open_study(
    storage: str | BaseStorage | None, name: str, goal: Goal, marks: Mapping[str, str], takes: Takes
) -> optuna.Study:
    """The study of that name, new where there is none; in memory without storage."""
    sampler = Proposing(goal, takes)
    with _opening(storage):
        study = optuna.create_study(
            storage=storage, study_name=name, sampler=sampler, pruner=Halving(), load_if_exists=True
        )
        _require_readable(study)
        _require_same(study, name, {**marks, **{key: str(value) for key, value in goal.to_json().items()}})
        release_the_dead(study)
    return study


def require_storage(storage: str) -> None:
    """Refuse a storage that Optuna does not open."""
    with _opening(storage):
        optuna.storages.get_storage(storage)


@contextmanager
def _opening(storage: object) -> Iterator[None]:
    """Report a storage that cannot be opened in one line."""
    try:
        with refuse_full_disk(storage, AGAIN):
            yield
    except RopewalkError:
        raise
    except Exception as wrong:  # every kind of storage has its own errors, and anything in it may be damaged
        summary = f"{type(wrong).__name__}: {why(wrong)}"
        raise Unreadable("storage", "a study that Optuna opens, as fit wrote it", storage, remedy=summary) from wrong


def marks_of_study(storage: str, name: str) -> dict[str, str]:
    """The marks of the study of that name; none where there is no such study."""
    file = storage.removeprefix("sqlite:///")
    if file != storage and not Path(file).exists():  # to look into it would make it
        return {}
    try:
        return dict(optuna.load_study(study_name=name, storage=storage).user_attrs.get(MARKS, {}))
    except Exception:  # there is none; or it is damaged, which is said where it is opened
        return {}


@contextmanager
def storing(storage: object) -> Iterator[None]:
    """Report a storage that fails during the search in one line; what was measured is kept."""
    try:
        with refuse_full_disk(storage, AGAIN):
            yield
    except (StorageInternalError, SQLAlchemyError) as wrong:
        summary = why(wrong.__cause__ or wrong)
        raise Unreadable("storage", "readable and writable", storage, remedy=summary) from wrong


def _require_readable(study: optuna.Study) -> None:
    """Read all that a search will read, so that damage shows now and not hours later."""
    history = finished_trials(study)
    if len(study.directions) != 1 or study.directions[0] != StudyDirection.MINIMIZE:
        raise Unreadable(f"study {study.study_name}", "one that minimises", study.directions)
    for trial in history:
        if not all(isinstance(step, float) for step in trial.direction):
            raise Unreadable(f"trial {trial.number}", "one with numbers as its direction", trial.direction)


def _require_same(study: optuna.Study, name: str, marks: dict[str, str]) -> None:
    """Refuse to mix measurements of different models, texts, goals, sources or versions."""
    known = study.user_attrs.get(MARKS)
    if known is None:
        study.set_user_attr(MARKS, marks)
        return
    other = sorted(key for key in {*known, *marks} if known.get(key) != marks.get(key))
    if other:
        rule = "of the same model, text, goal and code"
        got = ", ".join(f"{key} {known.get(key)} (now {marks.get(key, 'the default')})" for key in other)
        raise DoesNotFit(f"study {name}", rule, got, remedy="name another study, or another folder")


def next_trial(study: optuna.Study, goal: Goal) -> tuple[Trial, Space, Values]:
    """The next trial, with its values recorded where other workers see them."""
    trial = study.ask()
    trial.set_user_attr(OWNER, _owner())
    spaces = spaces_of(goal)
    space = spaces[_suggest(trial, SPACE, names_of(goal))]
    knobs = space.knobs(goal)
    return trial, space, {name: _suggest(trial, f"{space.name}.{name}", knob) for name, knob in knobs.items()}


def _suggest(trial: Trial, name: str, knob: BaseDistribution) -> Any:
    match knob:
        case FloatDistribution():
            return trial.suggest_float(name, knob.low, knob.high, log=knob.log)
        case IntDistribution():
            return trial.suggest_int(name, knob.low, knob.high)
        case CategoricalDistribution():
            return trial.suggest_categorical(name, knob.choices)
    raise unknown_knob(knob)


def give_up(study: optuna.Study, trial: FrozenTrial) -> None:
    """Drop an interrupted trial: it does not count, and its turn is repeated."""
    study.tell(trial.number, state=TrialState.FAIL)


def release_the_dead(study: optuna.Study) -> None:
    """Drop the trials of killed processes of this machine."""
    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        machine, _, process = str(trial.user_attrs.get(OWNER, "")).rpartition(":")
        if machine == socket.gethostname() and process.isdecimal() and not _alive(int(process)):
            give_up(study, trial)


def _alive(process: int) -> bool:
    """Whether another process with this id runs; our own id belonged to another process then."""
    if process == os.getpid():
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _owner() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"
