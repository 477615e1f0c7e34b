"""Surgery on real models: their weights changed, their config telling so, a new model of the same class."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from ropewalk.errors import DoesNotFit, InvalidValue
from ropewalk.hf.extending import HANDLE, host_of
from ropewalk.hf.facts import facts_of
from ropewalk.hf.probe import probe
from ropewalk.parsing import parse
from ropewalk.surgery import Surgery


def convert(model: nn.Module, surgery: Surgery | str) -> PreTrainedModel:
    """A new model with changed weights ("gqa:kv_heads=2", "qk_bias"), which plain transformers saves and loads.

    The model that is given stays as it is. Fewer key heads make its cache smaller by as much.
    """
    host = host_of(model)
    if HANDLE in host.__dict__:
        remedy = "remove it, convert, and extend the new model"
        raise InvalidValue("model", "free of an extension", "one", remedy=remedy)
    layers = probe(host)
    facts = facts_of(host, layers[0], len(layers))
    state: dict[str, Tensor] = dict(host.state_dict())
    changed = facts
    for spec in _operations(surgery):
        spec.check_against(changed)
        state, changed = spec.convert(state, changed)
    config = copy.deepcopy(host.config)
    if changed.groups != facts.groups:
        config.get_text_config().num_key_value_heads = changed.groups
    if set(state) - set(host.state_dict()):
        config.get_text_config().attention_bias = True
    return _made(host, config, state)


def _operations(surgery: Surgery | str) -> tuple[Surgery, ...]:
    operations = parse(surgery).surgery if isinstance(surgery, str) else (surgery,)
    if not operations or not all(isinstance(each, Surgery) for each in operations):
        raise InvalidValue("surgery", "an operation on weights, such as gqa:kv_heads=2 or qk_bias", surgery)
    return operations


def _made(host: PreTrainedModel, config: Any, state: dict[str, Tensor]) -> PreTrainedModel:
    """The model of this config with these weights; biases that the config brings along and nobody stated are 0."""
    made: Any = type(host)(config)
    made.to(host.device, host.dtype)
    wanted = made.state_dict()
    brought = {name: torch.zeros_like(wanted[name]) for name in set(wanted) - set(state) if name.endswith("bias")}
    odd = (set(wanted) ^ set(state)) - set(brought)
    odd |= {name for name in set(wanted) & set(state) if wanted[name].shape != state[name].shape}
    if odd:
        rule = "one whose config can say what is changed"
        raise DoesNotFit("model", rule, f"{type(host).__name__}, {min(odd)}")
    made.load_state_dict({**state, **brought})
    made.generation_config = copy.deepcopy(host.generation_config)
    own: PreTrainedModel = made.train(host.training)
    return own
