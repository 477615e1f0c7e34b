"""The static part of an extension: one table of frequencies, one scale. Anything else is refused."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ropewalk.errors import DoesNotFit
from ropewalk.extension.extension import Extension
from ropewalk.methods.facts import Facts

FIRST = torch.tensor([0])


class ConstantScale(NamedTuple):
    """The factors of every row: of whole logits, and of the products of rotating dimensions beyond that."""

    logits: float
    rotation: float


def static_table(extension: Extension, facts: Facts) -> Tensor:
    """The one table of every row; refused where rows differ, or where there is more than frequencies."""
    for slot in ("reach", "biases"):
        if extension.specs.get(slot):
            name = extension.specs[slot][0].name
            raise DoesNotFit.because(slot, f"{name} ({slot}) cannot be expressed in rotary tables or in a config")
    table = extension.theta.table(facts, 1)
    if len(extension.theta.stages(facts, 64 * facts.trained_len)) > 1:
        raise DoesNotFit("frequencies", "the same for every row to fit in a table", extension.theta.name)
    if 2 * len(table.inv_freq) != facts.rotating:
        rule = f"for the {facts.rotating} dimensions that the model rotates, to fit in its table"
        raise DoesNotFit("frequencies", rule, f"{extension.theta.name} for {2 * len(table.inv_freq)}")
    if table.log_decay.any():
        raise DoesNotFit("frequencies", "rotation without decay to fit in a table", extension.theta.name)
    return table.inv_freq


def constant_scale(extension: Extension, facts: Facts) -> ConstantScale:
    """The factors of all rows; refused where they are not constant."""
    logits = rotation = 1.0
    for spec in extension.scales:
        if spec.weights(facts):
            raise DoesNotFit("scales", "constant, not learned", spec.name)
        if spec.of_row:
            sentence = f"{spec.name} (scales) differs from row to row; one factor for all rows cannot express it"
            raise DoesNotFit.because("scales", sentence)
        value = float(spec.scale(FIRST, facts, {}))
        logits, rotation = (logits, rotation * value) if spec.of_rotation else (logits * value, rotation)
    return ConstantScale(logits, rotation)
