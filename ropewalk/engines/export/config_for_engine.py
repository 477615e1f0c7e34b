"""An extension stated in a config; a temperature that no config states goes into the weights."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import Tensor
from transformers import MistralConfig, PreTrainedModel

from ropewalk.engines.check.reading import EXPORTED, Stretch, stretch_in
from ropewalk.engines.rules.statement import StatedModel, yarn_temperature
from ropewalk.errors import DoesNotFit
from ropewalk.extension.extension import Extension
from ropewalk.extension.static import static_table
from ropewalk.hf.checkpoint.config_schedule import standard_config, why_not_expressible
from ropewalk.hf.checkpoint.sidecar import whole_state
from ropewalk.hf.runtime.layer import ExtendedLayer, type_of
from ropewalk.methods.facts import Facts
from ropewalk.methods.reach import Window

# Fold a temperature into the weights of the queries, their norm or projection, for engines that read none.


def fold_into_weights(
    host: PreTrainedModel, layers: Sequence[ExtendedLayer], factor: float, *, whole: bool
) -> dict[str, Tensor]:
    """All weights of the model, with the queries of the extended layers multiplied.

    `whole` multiplies whole queries, otherwise the dimensions that rotate.
    """
    state = whole_state(host)
    names = {module: name for name, module in host.named_modules()}
    for layer in _extended_layers(layers):
        maker, name = layer.probed.module, names[layer.probed.module]
        by_d, heads = _factor_of_dimensions(layer, factor, whole), layer.probed.heads
        if hasattr(maker, "q_norm"):
            key = f"{name}.q_norm.weight"
            one = float(_adds_one(maker.q_norm))
            by = by_d.repeat(state[key].numel() // len(by_d)).view_as(state[key])
            state[key] = ((state[key] + one) * by - one).to(state[key].dtype)
        elif hasattr(maker, "q_proj"):
            for key in (f"{name}.q_proj.weight", f"{name}.q_proj.bias"):
                state |= {key: _rows_times(state[key], by_d.repeat(heads))} if key in state else {}
        else:
            key, rows = f"{name}.qkv_proj.weight", heads * layer.probed.head_dim
            state[key] = torch.cat([_rows_times(state[key][:rows], by_d.repeat(heads)), state[key][rows:]])
    return state


def _factor_of_dimensions(layer: ExtendedLayer, factor: float, whole: bool) -> Tensor:
    """The factor of each dimension of a query."""
    size, first = layer.probed.head_dim, layer.probed.first
    by_d = torch.full((size,), factor if whole else 1.0, dtype=torch.float64)
    by_d[first : first + layer.probed.rotating] = factor
    return by_d


def _rows_times(weight: Tensor, by: Tensor) -> Tensor:
    return (weight * by.to(weight.device).view(-1, *[1] * (weight.dim() - 1))).to(weight.dtype)


def why_not_foldable(layers: Sequence[ExtendedLayer]) -> DoesNotFit | None:
    """Why a temperature cannot go into the weights: queries come from no known module. None where it can."""
    for layer in _extended_layers(layers):
        maker = layer.probed.module
        if not any(hasattr(maker, name) for name in ("q_norm", "q_proj", "qkv_proj")):
            rule = "one with q_proj, qkv_proj or q_norm, to fold a temperature into"
            return DoesNotFit("model", rule, type(maker).__name__)
    return None


def _extended_layers(layers: Sequence[ExtendedLayer]) -> Iterator[ExtendedLayer]:
    return (layer for layer in layers if not layer.left_alone)


def _adds_one(norm: Any) -> bool:
    """Whether a norm multiplies by its weight plus one."""
    blank = copy.deepcopy(norm)
    torch.nn.init.zeros_(blank.weight)
    return bool(blank(torch.ones_like(blank.weight)).any())


# A static extension as a transformers config for an engine, with its window.


def state_extension(
    host: PreTrainedModel, extension: Extension, layers: Sequence[ExtendedLayer], target_len: int | None
) -> StatedModel | DoesNotFit:
    """The extension in a copy of the model's config, or the reason why no config says it."""
    window = extension.reach.window if isinstance(extension.reach, Window) else None
    static = extension if window is None else replace(extension, reach=None)
    config = standard_config(host.config, static, layers, target_len)
    if isinstance(config, DoesNotFit):
        return config
    config.architectures, config.dtype = [type(host).__name__], host.dtype
    # A temperature of whole logits and one of the rotation cannot be told apart.
    reason = why_not_expressible(static, layers)
    if reason is not None and any(spec.of_rotation for spec in static.scales):
        return reason
    turning = [layer for layer in layers if layer.probed.rotating and not layer.left_alone]
    first = turning[0]
    model = StatedModel(
        config,
        _kinds(config, turning),
        static_table(static, first.facts),
        config.get_text_config().max_position_embeddings,
        bool(first.probed.interleaved),
        reaches_all=reason is None,
    )
    for parameters in model.parameters:
        if parameters["rope_type"] == "yarn":  # some engines multiply their own temperature by this
            parameters["attn_factor"] = model.temperature / yarn_temperature(parameters["factor"])
    if model.length > first.facts.trained_len and static.specs:
        note_stretch(config, first.facts, model.length, static)
    return model if window is None else _state_window(model, window, layers)


def note_stretch(config: Any, facts: Facts, length: int, extension: Extension) -> None:
    """Say in a config what the model was trained on, and what stretches it: the rope parameters may not show it."""
    text = config.get_text_config()
    before = stretch_in(text)
    trained = facts.trained_len if before is None else before.trained_len
    methods = "+".join(spec.name for specs in extension.specs.values() for spec in specs)
    setattr(text, EXPORTED, asdict(Stretch(trained_len=trained, target_len=length, methods=methods)))


def _kinds(config: Any, turning: Sequence[ExtendedLayer]) -> tuple[str, ...]:
    """The types of the extended layers, where the config has rotary parameters per type."""
    text = config.get_text_config()
    if not any(isinstance(part, dict) for part in text.rope_parameters.values()):
        return ()
    return tuple(dict.fromkeys(type_of(layer, text.layer_types) for layer in turning))


def _state_window(model: StatedModel, window: int, layers: Sequence[ExtendedLayer]) -> StatedModel | DoesNotFit:
    """A window in all layers, in the model's config, or in Mistral's for a Llama; or the reason why neither has one."""
    if model.kinds or any(layer.probed.limit is not None for layer in layers):
        return _no_window("where some layers have a window already")
    if model.text.model_type == "llama":
        if model.config.attention_bias or model.config.mlp_bias:
            return _no_window("for a Llama whose projections have biases")
        values = {"model_type": "mistral", "architectures": ["MistralForCausalLM"]}
        model.config = MistralConfig.from_dict({**model.config.to_dict(), **values})  # Llama's attention with a window
    text = model.text
    if not hasattr(text, "sliding_window"):
        return _no_window(": the model's config has no sliding_window")
    text.sliding_window, model.window = window, window
    if getattr(text, "layer_types", None):
        text.layer_types = ["sliding_attention"] * len(layers)
    if hasattr(text, "use_sliding_window"):
        text.use_sliding_window, text.max_window_layers = True, 0
    return model


def _no_window(why: str) -> DoesNotFit:
    sentence = f"window cannot be exported {why}".replace(" :", ":")
    return DoesNotFit.because("reach", sentence, remedy="leave window out")
