"""Which presets apply to a model, what they ask of it, what their cache holds, and why the others do not apply."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from transformers import PreTrainedModel

from ropewalk.attention import Session
from ropewalk.errors import RopewalkError
from ropewalk.extension import Extension
from ropewalk.facts import Facts
from ropewalk.hf.attach.extend import require_steady
from ropewalk.hf.attach.handle import ATTENTION
from ropewalk.hf.attach.modes import Modes, attached_all
from ropewalk.hf.probe.rotary import ProbedLayer
from ropewalk.hf.use.convert import brought, operated
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


def advise(ways: Modes, facts: Facts, length: int, fixed: int) -> list[Advice]:
    """Every preset with its own values for this length; `fixed` bytes are held beside keys and values."""
    return [_advice(name, ways, facts, length, fixed) for name in PRESETS]


def _advice(name: str, ways: Modes, facts: Facts, length: int, fixed: int) -> Advice:
    by, layers, itemsize = "extend", [own.probed for own in ways.base], ways.host.dtype.itemsize
    try:
        asked = parse_for(name, facts, length)
        by = "nbce_generate" if asked.decoding else "convert" if asked.surgery else by
        asked.check_against(facts)
        changed = _converted(ways.host, asked, facts) if asked.surgery else facts
        if by == "extend" and _taken(ways, asked, length) == ATTENTION:
            total = held(layers, asked, facts, length) * itemsize
        else:
            total = kept_bytes(layers, length, itemsize) * changed.groups // facts.groups
    except RopewalkError as reason:
        return Advice(name, needs(name), by, 0, str(reason))
    return Advice(name, needs(name), by, total + fixed, "")


def _converted(host: PreTrainedModel, asked: Extension, facts: Facts) -> Facts:
    """The facts after its surgery, tried on shapes alone."""
    blank = {name: value.to("meta") for name, value in host.state_dict().items()}
    changed = operated(host, asked.surgery, blank, facts)
    with torch.device("meta"):
        brought(type(host)(changed.config), changed.state)
    return changed.facts


def _taken(ways: Modes, asked: Extension, length: int) -> str:
    """The way that `extend` would take, or its refusal."""
    layers = [own.probed for own in ways.base]
    require_steady(layers, asked)
    return ways.chosen(asked, attached_all(layers, [own.facts for own in ways.base], asked), length)[0]


def kept_bytes(layers: Sequence[ProbedLayer], length: int, itemsize: int) -> int:
    """What the model's own cache holds of keys and values after a text of this length."""
    total = 0
    for layer in layers:
        whole = layer.groups * (layer.head_dim + layer.value_dim) * itemsize
        total += min(layer.window or length, length) * (layer.cached.growth if layer.cached else whole)
    return total


def held(layers: Sequence[ProbedLayer], asked: Extension, facts: Facts, length: int) -> int:
    """How many numbers the caches of all layers hold after a text of this length."""
    # What is held depends on no sink: the model's need not be handed in.
    facts, asked = replace(facts, layers=len(layers), sinks=False), replace(asked, positions=None)
    known: dict[Any, tuple[int, bool]] = {}
    total = 0
    for depth, layer in enumerate(layers):
        own = Extension(reach=Window(window=layer.window)) if layer.window else asked.at_layer(depth, facts)
        if own not in known:
            session = Session(own, facts, weights=own.weights(facts))
            places = [buffer.held(length) for buffer in session.buffers]
            known[own] = sum(min(each.stop, length) - each.start for each in places), session.has_stages
        tokens, drifts = known[own]
        keys = layer.head_dim * (2 if drifts else 1)  # as they came, where the table changes with the row
        total += tokens * layer.groups * (keys + layer.value_dim)
    return total
