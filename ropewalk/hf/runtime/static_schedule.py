"""What of an extension is the same for every row: one table of frequencies, one scale. The rest is refused here."""

from __future__ import annotations

import torch
from torch import Tensor

from ropewalk.errors import DoesNotFit
from ropewalk.extension import Extension
from ropewalk.facts import Facts

PLACES = torch.tensor([0, 1, 1000, 10**6])  # where a scale that is no constant would show it


def static_table(extension: Extension, facts: Facts) -> Tensor:
    """The one table that serves every row; refused where there is none, or where frequencies are not all there is."""
    for slot in ("reach", "biases"):
        if extension.specs.get(slot):
            raise DoesNotFit(
                slot, "the model's own, or no table and no config can say it", extension.specs[slot][0].name
            )
    table = extension.theta.table(facts, 1)
    if len(extension.theta.stages(facts, 64 * facts.trained_len)) > 1:
        raise DoesNotFit("frequencies", "the same for every row in a table", extension.theta.name)
    if table.log_decay.any():
        raise DoesNotFit("frequencies", "turning alone in a table", extension.theta.name)
    return table.inv_freq


def constant_scale(extension: Extension, facts: Facts) -> float:
    """What all logits are multiplied by; refused where that is no constant."""
    total = 1.0
    for spec in extension.scales:
        if spec.weights(facts):
            raise DoesNotFit("scales", "settled, not learned", spec.name)
        scale = spec.scale(PLACES, facts, {})
        if not (scale == scale.flatten()[0]).all():
            raise DoesNotFit("scales", "the same for every row and head", spec.name)
        total *= float(scale.flatten()[0])
    return total
