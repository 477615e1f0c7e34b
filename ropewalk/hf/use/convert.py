"""Surgery on real models: their weights changed, their config telling so, a new model of the same class."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from ropewalk.errors import DoesNotFit, InvalidValue
from ropewalk.facts import Facts
from ropewalk.hf.attach.handle import handle_of, host_of
from ropewalk.hf.probe.facts import facts_of
from ropewalk.hf.probe.rotary import probe
from ropewalk.parsing import parse
from ropewalk.surgery import Surgery


def convert(model: nn.Module, surgery: Surgery | str) -> PreTrainedModel:
    """A new model with changed weights ("gqa:kv_heads=2", "qk_bias"), which plain transformers saves and loads.

    The model that is given stays as it is. Fewer key heads make its cache smaller by as much.
    """
    host = host_of(model)
    if handle_of(host) is not None:
        remedy = "remove it, convert, and extend the new model"
        raise InvalidValue("model", "free of an extension", "one", remedy=remedy)
    layers = probe(host)
    facts = facts_of(host, layers[0], len(layers))
    changed = operated(host, _operations(surgery), dict(host.state_dict()), facts)
    made: Any = type(host)(changed.config).to(host.device, host.dtype)  # type: ignore[arg-type]
    made.load_state_dict({**changed.state, **brought(made, changed.state)})
    made.generation_config = copy.deepcopy(host.generation_config)
    own: PreTrainedModel = made.train(host.training)
    return own


class ConversionPlan(NamedTuple):
    """What a model is to be made of."""

    config: Any
    state: dict[str, Tensor]
    facts: Facts


def operated(
    host: PreTrainedModel, surgery: Sequence[Surgery], state: dict[str, Tensor], facts: Facts
) -> ConversionPlan:
    """The weights after each operation, and a config that tells so."""
    config, before, groups = copy.deepcopy(host.config), set(state), facts.groups
    for spec in surgery:
        spec.check_against(facts)
        state, facts = spec.convert(state, facts)
    if facts.groups != groups:
        config.get_text_config().num_key_value_heads = facts.groups
    if set(state) - before:
        config.get_text_config().attention_bias = True
    return ConversionPlan(config, state, facts)


def _operations(surgery: Surgery | str) -> tuple[Surgery, ...]:
    operations = parse(surgery).surgery if isinstance(surgery, str) else (surgery,)
    if not operations or not all(isinstance(each, Surgery) for each in operations):
        raise InvalidValue("surgery", "an operation on weights, such as gqa:kv_heads=2 or qk_bias", surgery)
    return operations


def brought(made: nn.Module, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The biases that its config brings along and nobody stated, as 0; refused where more than that differs."""
    wanted = made.state_dict()
    biases = {name: torch.zeros_like(wanted[name]) for name in set(wanted) - set(state) if name.endswith("bias")}
    odd = (set(wanted) ^ set(state)) - set(biases)
    odd |= {name for name in set(wanted) & set(state) if wanted[name].shape != state[name].shape}
    if odd:
        rule = "one whose config can say what is changed"
        raise DoesNotFit("model", rule, f"{type(made).__name__}, {min(odd)}")
    return biases
