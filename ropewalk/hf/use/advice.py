"""Which presets apply to a model: the training that they need, the size of their cache, or why not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from transformers import PreTrainedModel

from ropewalk.attention import CacheState
from ropewalk.errors import RopewalkError
from ropewalk.extension.extension import Extension
from ropewalk.extension.parsing import PRESETS, parse_for
from ropewalk.extension.presets import Needs, needs
from ropewalk.hf.attach.extend import Modes, attach_layers, why_not_fitting
from ropewalk.hf.attach.handle import idle_slots
from ropewalk.hf.probe.host import require_plain
from ropewalk.hf.probe.probed_layer import ProbedLayer
from ropewalk.hf.runtime.layer import ExtendedLayer
from ropewalk.hf.use.convert import apply_surgery, missing_biases
from ropewalk.methods.facts import Facts


class Advice(NamedTuple):
    """A preset on this model."""

    name: str
    needs: Needs  # the training of the weights that its authors assume
    by: str  # the function that applies it
    cache_bytes: int  # of one text of the target length; 0 where it does not apply
    why_not: str  # empty where it applies
    idle: tuple[str, ...] = ()  # its slots that no layer uses

    @property
    def applies(self) -> bool:
        """Whether the model accepts it."""
        return not self.why_not


def advise(modes: Modes, facts: Facts, length: int, fixed: int) -> list[Advice]:
    """Every preset with its values for this length; `fixed` are the bytes of the cache besides keys and values."""
    return [_advice(name, modes, facts, length, fixed) for name in PRESETS]


def _advice(name: str, modes: Modes, facts: Facts, length: int, fixed: int) -> Advice:
    by, layers, itemsize = "extend", [layer.probed for layer in modes.base], modes.host.dtype.itemsize
    idle: tuple[str, ...] = ()
    try:
        extension = parse_for(name, facts, length)
        by = "nbce_generate" if extension.decoding else "convert" if extension.surgery else by
        extension.check_against(facts)
        changed = _convert_facts(modes.host, extension, facts) if extension.surgery else facts
        ours = False
        if by == "extend":
            under = _layers_under(modes, extension)
            if reason := why_not_fitting(modes.host, layers, extension, [layer.facts for layer in modes.base]):
                raise reason
            ours = modes.choose(extension, under, length)[0] is None
            idle = idle_slots(extension, under)
        if ours and not any(layer.own_mask for layer in layers):
            total = numbers_held(layers, extension, facts, length) * itemsize
        else:
            total = kept_bytes(layers, length, itemsize) * changed.groups // facts.groups
    except RopewalkError as reason:
        return Advice(name, needs(name), by, 0, str(reason))
    return Advice(name, needs(name), by, total + fixed, "", idle)


def _convert_facts(host: PreTrainedModel, extension: Extension, facts: Facts) -> Facts:
    """The facts after its surgery, tried on shapes only."""
    require_plain(host, "surgery")
    blank = {name: value.to("meta") for name, value in host.state_dict().items()}
    changed = apply_surgery(host, extension.surgery, blank, facts)
    with torch.device("meta"):
        missing_biases(type(host)(changed.config), changed.state)
    return changed.facts


def _layers_under(modes: Modes, extension: Extension) -> list[ExtendedLayer]:
    """The layers of the base model under an extension."""
    return attach_layers([layer.probed for layer in modes.base], [layer.facts for layer in modes.base], extension)


def kept_bytes(layers: Sequence[ProbedLayer], length: int, itemsize: int) -> int:
    """The bytes of keys and values in the model's own cache after a text of this length."""
    total = 0
    for layer in layers:
        whole = layer.groups * (layer.head_dim + layer.value_dim) * itemsize
        total += min(layer.limit or length, length) * (layer.cached.growth if layer.cached else whole)
    return total


def numbers_held(layers: Sequence[ProbedLayer], extension: Extension, facts: Facts, length: int) -> int:
    """How many numbers our caches of all layers hold after a text of this length."""
    # The size does not depend on the numbers that the model learned, so they are not needed here.
    facts = replace(facts, layers=len(layers), sinks=False, weighted=False)
    extension = replace(extension, positions=None)
    known: dict[Extension, list[tuple[CacheState, int]]] = {}
    total = 0
    for depth, layer in enumerate(layers):
        if any(other.slots for other in layers):  # they keep the model's own cache
            total += length * layer.groups * (layer.head_dim + layer.value_dim) * (layer.slots or 1)
            continue
        local = Extension(reach=layer.reach) if layer.reach else extension.at_layer(depth, facts)
        if local not in known:
            state = CacheState(local, facts, weights=local.weights(facts))
            known[local] = [(member, _tokens_held(member, length)) for member in state.members]
        for member, tokens in known[local]:
            share = member.terms.heads_here.groups / facts.groups  # layers may have other numbers of heads
            keys = layer.head_dim * (2 if member.has_stages else 1)  # unrotated too, where the table changes with rows
            total += round(tokens * layer.groups * share) * (keys + layer.value_dim)
    return total


def _tokens_held(state: CacheState, length: int) -> int:
    """How many tokens the buffers of a cache hold after a text of this length, one held twice counted twice."""
    places = [buffer.held(length) for buffer in state.buffers]
    return sum(min(place.stop, length) - place.start for place in places)
