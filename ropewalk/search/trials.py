"""The trials of a study, read from Optuna's records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import optuna
from optuna.trial import FrozenTrial, TrialState

from ropewalk.errors import Unreadable
from ropewalk.extension.extension import Extension
from ropewalk.search.goal import Measurements

SPACE, EXTENSION, FIGURES, HAND_SET, REFUSED = "space", "extension", "figures", "seed", "refused"
FINISHED = (TrialState.COMPLETE, TrialState.PRUNED)


class MeasuredTrial(NamedTuple):
    """One extension, measured completely or until it fell behind."""

    number: int
    space: str
    values: dict[str, Any]
    extension: Extension
    rungs: dict[int, float]  # loss on each rung that it reached
    figures: Measurements | None  # None where it fell behind
    violations: dict[str, float]
    seed: bool  # whether it is hand-set
    direction: Sequence[float] = ()  # step from here for each gene, where gradients were computed

    @property
    def broken(self) -> float:
        """By how much it exceeds the conditions in sum; they are of about the same size."""
        return sum(max(0.0, excess) for excess in self.violations.values())

    @property
    def keeps(self) -> bool:
        """Whether it was measured completely and keeps to all conditions."""
        return self.figures is not None and self.broken == 0


def finished_trials(study: optuna.Study) -> list[MeasuredTrial]:
    """Finished trials, in order, without interrupted and refused ones."""
    trials, known = study.get_trials(deepcopy=False, states=FINISHED), study.user_attrs
    finished = [trial for trial in trials if EXTENSION in trial.user_attrs and REFUSED not in trial.user_attrs]
    return [read(trial, known.get(direction_of(trial.number), ())) for trial in finished]


def direction_of(number: int) -> str:
    """The name under which a study stores the step from a trial."""
    return f"direction {number}"


def read(trial: FrozenTrial, direction: Sequence[float] = ()) -> MeasuredTrial:
    """Read one trial."""
    space, figures = trial.params[SPACE], trial.user_attrs.get(FIGURES)
    prefix = f"{space}."
    return MeasuredTrial(
        number=trial.number,
        space=space,
        values={name.removeprefix(prefix): value for name, value in trial.params.items() if name.startswith(prefix)},
        extension=Extension.from_json(trial.user_attrs[EXTENSION]),
        rungs=dict(trial.intermediate_values),
        figures=_figures(figures) if figures else None,
        violations=dict(trial.constraints),
        seed=bool(trial.user_attrs.get(HAND_SET)),
        direction=direction,
    )


def _figures(stored: Mapping[str, Any]) -> Measurements:
    """The measurements, checked to be numbers."""
    figures = Measurements(**stored)
    for name, value in figures._asdict().items():
        if not isinstance(value, float | int) and not (name == "retrieval" and value is None):
            raise Unreadable(name, "a number", value, remedy="the study was changed: name another")
    return figures


def rank(trials: Iterable[MeasuredTrial]) -> list[MeasuredTrial]:
    """Completed trials: those within the conditions first, or nearest to them, then by loss, then by number."""
    whole = [(trial.broken, trial.figures.loss, trial.number, trial) for trial in trials if trial.figures]
    return [trial for *_, trial in sorted(whole, key=lambda four: four[:3])]


def best(trials: Iterable[MeasuredTrial]) -> MeasuredTrial | None:
    """The lowest loss of those that keep to the conditions."""
    return next((trial for trial in rank(trials) if trial.keeps), None)
