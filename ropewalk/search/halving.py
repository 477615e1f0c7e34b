"""Who is measured further: successive halving over rungs of more and more texts.

A proposal goes on where it is among the best third of all that stood on the rung. What was set by hand is to be beaten,
so it goes on until it is hopeless.

Source: asynchronous successive halving, Li et al. 2020, arXiv:1810.05934. Deviation from Optuna's pruner of that name:
what was interrupted counts for nothing, so that a search that was killed and goes on ends where it would have ended.
"""

from __future__ import annotations

import math

import optuna
from optuna.pruners import BasePruner
from optuna.trial import FrozenTrial, TrialState

from ropewalk.search.tried import SEED

KEPT = 3  # one in so many goes on
HOPELESS = 0.05  # nats per token behind the best on the same texts


class Halving(BasePruner):
    """Optuna's question after each rung."""

    def prune(self, study: optuna.Study, trial: FrozenTrial) -> bool:
        """Whether to stop here."""
        step = trial.last_step
        if step is None:
            return False
        loss = trial.intermediate_values[step]
        rivals = [
            each.intermediate_values[step]
            for each in study.get_trials(deepcopy=False)
            if each.state != TrialState.FAIL and each.number != trial.number and step in each.intermediate_values
        ]
        return falls_behind(loss, rivals, by_hand=bool(trial.user_attrs.get(SEED)))


def falls_behind(loss: float, rivals: list[float], *, by_hand: bool) -> bool:
    """Whether a loss is not worth pursuing beside those of others on the same texts."""
    if not math.isfinite(loss):
        return True
    if by_hand:
        return bool(rivals) and loss > min(rivals) + HOPELESS
    return sum(rival < loss for rival in rivals) >= max(1, (len(rivals) + 1) // KEPT)
