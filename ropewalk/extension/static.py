"""The static part of an extension: one table of frequencies and one scale for all rows, as tables and configs hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ropewalk.errors import DoesNotFit
from ropewalk.extension.extension import Extension
from ropewalk.extension.notation import growing_factors
from ropewalk.methods.facts import Facts
from ropewalk.methods.frequencies import Dynamic
from ropewalk.methods.frequencies.frequencies import unwrap, wrap
from ropewalk.methods.scales import DynamicTemperature

FIRST = torch.tensor([0])


class ConstantScale(NamedTuple):
    """The factors of every row: of whole logits, and of the products of rotating dimensions beyond that."""

    logits: float
    rotation: float


def why_not_all_heads(extension: Extension) -> DoesNotFit | None:
    """Why what is in force in a layer is not that of all its heads; None where it is."""
    if not extension.heads:
        return None
    heads = ", ".join(str(head) for head, _ in extension.head_items)
    sentence = f"the heads of a layer differ (key heads {heads}), which tables, configs and engines' pages cannot say"
    return DoesNotFit.because("heads", sentence, remedy="only Ropewalk's own attention in transformers computes it")


def why_not_one_phase(extension: Extension) -> DoesNotFit | None:
    """Why tokens that are read and tokens that are written are not computed alike; None where they are."""
    if extension.writing == extension:
        return None
    told = [reach for part in extension.parts if (reach := part.reach) is not None and reach.writing != reach]
    sentence = (
        f"{told[0].name} sees more in tokens that a model writes than in those of a prompt, and neither configs nor "
        "pages say which token is which"
    )
    remedy = "only Ropewalk's own attention in transformers computes it; sinks and window are the same in all tokens"
    return DoesNotFit.because("reach", sentence, remedy=remedy)


def why_not_static(extension: Extension, facts: Facts) -> DoesNotFit | None:
    """Why rows differ, or what there is besides frequencies; None where one table of every row is all."""
    if reason := why_not_all_heads(extension):
        return reason
    for slot in ("reach", "biases"):
        if extension.specs.get(slot):
            name = extension.specs[slot][0].name
            return DoesNotFit.because(slot, f"{name} ({slot}) cannot be expressed in rotary tables or in a config")
    table = extension.frequencies_or_rope.table(facts, 1)
    if len(extension.frequencies_or_rope.stages(facts, 64 * facts.trained_len)) > 1:
        return DoesNotFit("frequencies", "the same for every row to fit in a table", extension.frequencies_or_rope.name)
    if 2 * len(table.inv_freq) != facts.rotating:
        rule = f"for the {facts.rotating} dimensions that the model rotates, to fit in its table"
        return DoesNotFit("frequencies", rule, f"{extension.frequencies_or_rope.name} for {2 * len(table.inv_freq)}")
    if table.log_decay.any():
        return DoesNotFit("frequencies", "rotation without decay to fit in a table", extension.frequencies_or_rope.name)
    return None


def static_table(extension: Extension, facts: Facts) -> Tensor:
    """The one table of every row, or a refusal."""
    if reason := why_not_static(extension, facts):
        raise reason
    return extension.frequencies_or_rope.table(facts, 1).inv_freq


def why_not_constant(extension: Extension, facts: Facts) -> DoesNotFit | None:
    """Why the factors of rows differ; None where they are the same for all."""
    for spec in extension.scales:
        if spec.weights(facts):
            return DoesNotFit("scales", "constant, not learned", spec.name)
        if spec.of_row:
            sentence = f"{spec.name} (scales) differs from row to row; one factor for all rows cannot express it"
            return DoesNotFit.because("scales", sentence)
    return None


def constant_scale(extension: Extension, facts: Facts) -> ConstantScale:
    """The factors of all rows, or a refusal."""
    if reason := why_not_constant(extension, facts):
        raise reason
    logits = rotation = 1.0
    for spec in extension.scales:
        value = float(spec.scale(FIRST, facts, {}))
        logits, rotation = (logits, rotation * value) if spec.of_rotation else (logits * value, rotation)
    return ConstantScale(logits, rotation)


def why_not_in_pages(extension: Extension, facts: Facts) -> DoesNotFit | None:
    """Why keys that are rotated once, when they are written, are not those of every row; None where they are."""
    if reason := why_not_all_heads(extension) or why_not_one_phase(extension):
        return reason
    if not extension.frequencies_or_rope.table(facts, 1).log_decay.any():
        return None
    sentence = (
        f"keys of {extension.frequencies_or_rope.name} decay with the position, and cannot be kept in an engine's pages"
    )
    return DoesNotFit.because("frequencies", sentence)


def is_dynamic(extension: Extension) -> bool:
    """Whether its schedule stretches every row as much as the row needs, in wrappers or without."""
    return isinstance(unwrap(extension.frequencies_or_rope).core, Dynamic)


def request_lengths(factors: Sequence[float], facts: Facts) -> list[int]:
    """How long a request may be under each of the factors that one is chosen from; refused unless they grow from 1."""
    return [int(factor * facts.trained_len) for factor in growing_factors(factors)]


def freeze(extension: Extension, facts: Facts, length: int) -> Extension:
    """A dynamic schedule made static for texts of one length, in its wrappers; any other unchanged."""
    if extension.heads:
        heads = [(head, freeze(override, facts, length)) for head, override in extension.head_items]
        extension = replace(extension, heads=tuple(heads))
    core, wrappers = unwrap(extension.frequencies_or_rope)
    if not isinstance(core, Dynamic):
        return extension
    factor: Any = {"factor": length / facts.trained_len}
    scales = [
        replace(spec.inner, **factor) if isinstance(spec, DynamicTemperature) else spec for spec in extension.scales
    ]
    return replace(extension, frequencies=wrap(replace(core.inner, **factor), wrappers), scales=tuple(scales))
