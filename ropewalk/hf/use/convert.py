"""Surgery on models: changed weights and config, in a new model of the same class."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from ropewalk.errors import DoesNotFit, InvalidValue
from ropewalk.extension.parsing import parse
from ropewalk.hf.attach.handle import handle_of, host_of
from ropewalk.hf.checkpoint.sidecar import whole_state
from ropewalk.hf.probe.facts import facts_of
from ropewalk.hf.probe.host import device_of, require_plain
from ropewalk.hf.probe.max_length import learned_positions
from ropewalk.hf.probe.probe import probe
from ropewalk.hf.use.save import require_merged
from ropewalk.methods.facts import Facts
from ropewalk.methods.surgery import StretchPositions, Surgery


def convert(model: nn.Module, surgery: Surgery | str) -> PreTrainedModel:
    """A new model with changed weights, which plain transformers saves and loads.

        grouped = rw.convert(model, "gqa:kv_heads=2")

    The original model is unchanged. The cache shrinks in proportion to the key heads.

    Args:
        model: a model that is not under an extension.
        surgery: a line ("gqa:kv_heads=2", "qk_bias", "stretched_positions:..."), or a `Surgery`.
    """
    host = host_of(model)
    if handle_of(host) is not None:
        remedy = "remove it, convert, and extend the new model"
        raise InvalidValue.because("model", "the model is under an extension", remedy=remedy)
    require_plain(host, "surgery")
    require_merged(host, "surgery")
    layers = probe(host)
    facts = facts_of(host, layers[0], len(layers))
    changed = apply_surgery(host, _operations(surgery), whole_state(host), facts)
    converted: Any = type(host)(changed.config).to(device_of(host), host.dtype)  # type: ignore[arg-type]
    converted.load_state_dict({**changed.state, **missing_biases(converted, changed.state)})
    converted.generation_config = copy.deepcopy(host.generation_config)
    model_in_mode: PreTrainedModel = converted.train(host.training)
    return model_in_mode


class ConversionPlan(NamedTuple):
    """The parts of the new model."""

    config: Any
    state: dict[str, Tensor]
    facts: Facts


def apply_surgery(
    host: PreTrainedModel, surgery: Sequence[Surgery], state: dict[str, Tensor], facts: Facts
) -> ConversionPlan:
    """The weights after all operations, with a config that fits them."""
    config, before, groups = copy.deepcopy(host.config), set(state), facts.groups
    for spec in (_locate(operation, host) for operation in surgery):
        spec.check_against(facts)
        old, (state, facts) = state, spec.convert(state, facts)
        if isinstance(spec, StretchPositions):
            grown = max(state[name].shape[0] - table.shape[0] for name, table in old.items() if table.dim())
            config.get_text_config().max_position_embeddings += grown
    if facts.groups != groups:
        config.get_text_config().num_key_value_heads = facts.groups
    if set(state) - before:
        config.get_text_config().attention_bias = True
    return ConversionPlan(config, state, facts)


def _locate(spec: Surgery, host: PreTrainedModel) -> Surgery:
    """A surgery on positions, with the table that the model looks them up in."""
    if not isinstance(spec, StretchPositions) or spec.module is not None:
        return spec
    table = learned_positions(host)
    if table is None or not table.name:
        raise DoesNotFit.because("model", "the model has no table of learned positions to stretch")
    untouched = table.untouched if spec.untouched is None else spec.untouched
    return replace(spec, module=table.name.removesuffix(".weight"), untouched=untouched)


def _operations(surgery: Surgery | str) -> tuple[Surgery, ...]:
    operations = parse(surgery).surgery if isinstance(surgery, str) else (surgery,)
    if not operations or not all(isinstance(operation, Surgery) for operation in operations):
        raise InvalidValue("surgery", "an operation on weights, such as gqa:kv_heads=2 or qk_bias", surgery)
    return operations


def missing_biases(model: nn.Module, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Zeros for biases that the new config adds; refused where anything else differs."""
    wanted = model.state_dict()
    biases = {name: torch.zeros_like(wanted[name]) for name in set(wanted) - set(state) if name.endswith("bias")}
    odd = (set(wanted) ^ set(state)) - set(biases)
    odd |= {name for name in set(wanted) & set(state) if wanted[name].shape != state[name].shape}
    if odd:
        sentence = f"the config of {type(model).__name__} cannot describe the change: {min(odd)}"
        raise DoesNotFit.because("model", sentence)
    return biases
