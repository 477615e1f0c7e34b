"""Which presets apply to a model, what they ask of it, what their cache holds, and why the others do not apply."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from transformers import PreTrainedModel

from ropewalk.attention import Session
from ropewalk.errors import DoesNotFit, RopewalkError
from ropewalk.extension import Extension
from ropewalk.facts import Facts
from ropewalk.hf.converting import brought, operated
from ropewalk.hf.extending import attached_all, require_carried, require_steady
from ropewalk.hf.probe import Layer
from ropewalk.hf.tables import writing
from ropewalk.parsing import PRESETS, parse_for
from ropewalk.presets.needs import Needs, needs
from ropewalk.reach import Window


class Advice(NamedTuple):
    """A preset on this model."""

    name: str
    needs: Needs  # of its weights, before it runs as its authors run it
    by: str  # the function that takes it
    cache_bytes: int  # of one text of the target length; 0 where it does not apply
    why_not: str  # empty where it applies

    @property
    def applies(self) -> bool:
        """Whether this model takes it."""
        return not self.why_not


def advise(
    host: PreTrainedModel, layers: Sequence[Layer], every: Sequence[Facts], facts: Facts, length: int
) -> list[Advice]:
    """Every preset with its own values for this length; `every` has the facts of each layer."""
    return [_advice(name, host, layers, every, facts, length) for name in PRESETS]


def _advice(
    name: str, host: PreTrainedModel, layers: Sequence[Layer], every: Sequence[Facts], facts: Facts, length: int
) -> Advice:
    by = "extend"
    try:
        asked = parse_for(name, facts, length)
        by = "nbce_generate" if asked.decoding else "convert" if asked.surgery else by
        asked.check_against(facts)
        changed = _converted(host, asked, facts) if asked.surgery else facts
        if by == "extend":
            _require_taken(list(layers), list(every), asked, length)
        total = held(layers, asked, changed, length) * changed.groups // facts.groups * host.dtype.itemsize
    except RopewalkError as reason:
        return Advice(name, needs(name), by, 0, str(reason))
    return Advice(name, needs(name), by, total, "")


def _converted(host: PreTrainedModel, asked: Extension, facts: Facts) -> Facts:
    """The facts after its surgery, tried on shapes alone."""
    blank = {name: value.to("meta") for name, value in host.state_dict().items()}
    changed = operated(host, asked.surgery, blank, facts)
    with torch.device("meta"):
        brought(type(host)(changed.config), changed.state)
    return changed.facts


def _require_taken(layers: list[Layer], every: list[Facts], asked: Extension, length: int) -> None:
    """Refuse what `extend` would: neither the model's own tables can say it nor attention of ours carry it."""
    require_steady(layers, asked)
    own = attached_all(layers, every, asked)
    try:
        writing(asked, own, length)
    except DoesNotFit:
        require_carried(layers)


def held(layers: Sequence[Layer], asked: Extension, facts: Facts, length: int) -> int:
    """How many numbers the caches of all layers hold after a text of this length."""
    # What is held depends on no sink: the model's need not be handed in.
    facts, asked = replace(facts, layers=len(layers), sinks=False), replace(asked, positions=None)
    known: dict[Any, tuple[int, bool]] = {}
    total = 0
    for depth, layer in enumerate(layers):
        own = Extension(reach=Window(window=layer.window)) if layer.window else asked.at_layer(depth, facts)
        if own not in known:
            session = Session(own, facts, weights=own.weights(facts))
            places = [shelf.held(length) for shelf in session.shelves]
            known[own] = sum(min(each.stop, length) - each.start for each in places), session.drifts
        tokens, drifts = known[own]
        keys = layer.head_dim * (2 if drifts else 1)  # as they came, where the table changes with the row
        total += tokens * layer.groups * (keys + layer.value_dim)
    return total
