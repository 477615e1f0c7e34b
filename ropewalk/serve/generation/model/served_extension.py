"""One extension of the served model: its layers over pages, and the longest text that it carries."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from transformers import PreTrainedModel

from ropewalk.attention.layout.retention import Retention
from ropewalk.attention.paged import PagedLayer
from ropewalk.attention.problem import layer_terms
from ropewalk.extension.extension import Extension
from ropewalk.hf.attach.extend import planned
from ropewalk.hf.attach.handle import ATTENTION, handle_of
from ropewalk.hf.attach.modes import Modes
from ropewalk.hf.runtime.layer import ExtendedLayer
from ropewalk.methods.facts import Facts
from ropewalk.methods.reach.signature import furthest

BARE = "bare"  # the name of the model without an extension
LONGER_THAN_ANY = 2**40  # tokens: longer than any text


class ServedExtension:
    """The layers of the model under one extension, and what they need of pages."""

    def __init__(self, extension: Extension, layers: Sequence[ExtendedLayer]) -> None:
        self.extension, self.layers = extension, layers
        self.paged = _paged_layers(layers)
        self.lanes = max(layer.lanes for layer in self.paged)
        self.retention = Retention()
        for layer in self.paged:
            self.retention |= layer.retention
        lengths = [_carried(layer) for layer in layers]
        self.carried = min((length for length in lengths if length is not None), default=None)

    @property
    def facts(self) -> Facts:
        """Of the first layer."""
        return self.layers[0].facts


def served_extensions(
    host: PreTrainedModel,
    lines: Mapping[str, str | Extension],
    *,
    target_len: int | None = None,
    trained_len: int | None = None,
) -> dict[str, ServedExtension]:
    """The extensions of a model by name, the base model among them.

    A model that was saved under an extension loses it here, and has it again under the name that `lines` give it.
    """
    served: dict[str, ServedExtension] = {}
    handle = handle_of(host)
    if handle is not None:
        saved = ServedExtension(handle.extension, handle.layers)  # before its learned numbers are removed
        served = {name: saved for name, line in lines.items() if line == handle.extension}
        handle.remove()
    for name, line in {BARE: Extension(), **lines}.items():
        if name not in served:
            plan = planned(host, line, target_len=None if name == BARE else target_len, trained_len=trained_len)
            if name == BARE:
                Modes(host, plan.base).require(ATTENTION)
            served[name] = ServedExtension(plan.extension, plan.layers)
    return served


def _paged_layers(layers: Sequence[ExtendedLayer]) -> list[PagedLayer]:
    """One per layer; equal layers without learned numbers share one, and with it what a step computes once."""
    shared: dict[Any, PagedLayer] = {}
    paged = []
    for layer in layers:
        key = layer.extension, layer.facts, layer.depth if layer.weights else -1
        if key not in shared:
            weights = {name: {part: x.detach() for part, x in group.items()} for name, group in layer.weights.items()}
            shared[key] = PagedLayer(layer_terms(layer.extension, layer.facts, None, weights))
        paged.append(shared[key])
    return paged


def _carried(layer: ExtendedLayer) -> int | None:
    """The longest text in which every effective distance is one that the schedule carries; None without a limit."""
    theta, reach = layer.extension.theta, layer.extension.spans
    familiar = layer.facts.trained_len * theta.stretch
    if math.isinf(familiar) or not layer.probed.rotating or furthest(reach, LONGER_THAN_ANY) < familiar:
        return None
    low, high = 1, LONGER_THAN_ANY
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if furthest(reach, middle - 1) < familiar else (low, middle)
    return low
