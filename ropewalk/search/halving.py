"""Which trials continue: successive halving over rungs of more and more texts.

A proposal continues where it is among the best third of all trials on its rung. Hand-set extensions are the ones to
beat, so they continue up to MAX_GAP behind the best.

Source: asynchronous successive halving, Li et al. 2020, arXiv:1810.05934. Deviation from Optuna's pruner of that name:
interrupted trials do not count, so that a search that is killed and resumed ends where it would have ended.
"""

from __future__ import annotations

import math

import optuna
from optuna.pruners import BasePruner
from optuna.trial import FrozenTrial, TrialState

from ropewalk.measure.compare.halving import MAX_GAP
from ropewalk.search.trials import HAND_SET

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
