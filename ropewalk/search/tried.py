"""What a study knows of its trials, in our words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import optuna
from optuna.trial import FrozenTrial, TrialState

from ropewalk.errors import Unreadable
from ropewalk.extension import Extension
from ropewalk.search.goal import Measurements

SPACE, EXTENSION, FIGURES, SEED, REFUSED = "space", "extension", "figures", "seed", "refused"
FINISHED = (TrialState.COMPLETE, TrialState.PRUNED)


class MeasuredTrial(NamedTuple):
    """One extension that was measured, wholly or until it fell behind."""

    number: int
    space: str
    values: dict[str, Any]
    extension: Extension
    rungs: dict[int, float]  # loss on each rung that it reached
    figures: Measurements | None  # nothing where it fell behind
    violations: dict[str, float]
    seed: bool  # whether it was given by hand
    direction: Sequence[float] = ()  # where to step from here, of each gene, where that was looked for

    @property
    def broken(self) -> float:
        """By how much it breaks the conditions, all together; each is a number of about the same size."""
        return sum(max(0.0, each) for each in self.violations.values())

    @property
    def keeps(self) -> bool:
        """Whether it was measured wholly and keeps to all conditions."""
        return self.figures is not None and self.broken == 0


def tried(study: optuna.Study) -> list[MeasuredTrial]:
    """What is finished, in order; what was interrupted or refused is left out."""
    trials, known = study.get_trials(deepcopy=False, states=FINISHED), study.user_attrs
    kept = [each for each in trials if EXTENSION in each.user_attrs and REFUSED not in each.user_attrs]
    return [read(each, known.get(direction_of(each.number), ())) for each in kept]


def direction_of(number: int) -> str:
    """The name under which a study keeps where to step from a trial."""
    return f"direction {number}"


def read(trial: FrozenTrial, direction: Sequence[float] = ()) -> MeasuredTrial:
    """One trial."""
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
        seed=bool(trial.user_attrs.get(SEED)),
        direction=direction,
    )


def _figures(said: Mapping[str, Any]) -> Measurements:
    """What was measured, as numbers."""
    found = Measurements(**said)
    for name, value in found._asdict().items():
        if not isinstance(value, float | int) and not (name == "retrieval" and value is None):
            raise Unreadable(name, "a number", value, remedy="the study was changed: name another")
    return found


def ranked(found: Iterable[MeasuredTrial]) -> list[MeasuredTrial]:
    """What was measured wholly: what keeps to the conditions first, or nearly does, then by loss, then the earlier."""
    whole = [(each.broken, each.figures.loss, each.number, each) for each in found if each.figures]
    return [each for *_, each in sorted(whole, key=lambda four: four[:3])]


def best(found: Iterable[MeasuredTrial]) -> MeasuredTrial | None:
    """The lowest loss of those that keep to the conditions."""
    return next((each for each in ranked(found) if each.keeps), None)
