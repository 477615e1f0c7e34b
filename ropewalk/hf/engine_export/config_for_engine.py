"""A static extension in the words of transformers' config, as an engine is handed it, its window among them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from transformers import MistralConfig, PreTrainedModel

from ropewalk.errors import DoesNotFit
from ropewalk.extension import Extension
from ropewalk.hf.checkpoint.config_schedule import require_sayable, standard_config
from ropewalk.hf.engine_export.engines.signature import StatedModel, yarn_temperature
from ropewalk.hf.runtime.layer import ExtendedLayer, type_of
from ropewalk.hf.runtime.static_schedule import static_table
from ropewalk.reach import Window


def stated(
    host: PreTrainedModel, extension: Extension, layers: Sequence[ExtendedLayer], target_len: int | None
) -> StatedModel:
    """The extension in a copy of the model's config, or a refusal that says why a config cannot say it."""
    said, window = _without_window(extension)
    config = standard_config(host.config, said, layers, target_len)
    config.architectures, config.dtype = [type(host).__name__], host.dtype
    turning = [own for own in layers if own.probed.rotating and not own.left_alone]
    first = turning[0]
    found = StatedModel(
        config,
        _kinds(config, turning),
        static_table(said, first.facts),
        config.get_text_config().max_position_embeddings,
        bool(first.probed.interleaved),
        _reaches_all(said, layers),
    )
    for parameters in found.parameters:
        if parameters["rope_type"] == "yarn":  # some engines multiply their own temperature by this
            parameters["attn_factor"] = found.temperature / yarn_temperature(parameters["factor"])
    return found if window is None else _windowed(found, window, layers)


def _without_window(extension: Extension) -> tuple[Extension, int | None]:
    """The extension without a plain window, and how many keys that shows."""
    if not isinstance(extension.reach, Window):
        return extension, None
    return replace(extension, reach=None), extension.reach.window


def _kinds(config: Any, turning: Sequence[ExtendedLayer]) -> tuple[str, ...]:
    """The kinds of the layers that are ruled, where the config has rotary parameters for each kind."""
    text = config.get_text_config()
    if not any(isinstance(part, dict) for part in text.rope_parameters.values()):
        return ()
    return tuple(dict.fromkeys(type_of(own, text.layer_types) for own in turning))


def _reaches_all(extension: Extension, layers: Sequence[ExtendedLayer]) -> bool:
    try:
        require_sayable(extension, layers)
    except DoesNotFit:
        return False
    return True


def _windowed(found: StatedModel, window: int, layers: Sequence[ExtendedLayer]) -> StatedModel:
    """A window in all layers, as the model's config says one, or as Mistral's does for a Llama."""
    if found.kinds or any(own.probed.window is not None for own in layers):
        raise DoesNotFit("reach", "the model's own where some layers have a window already", "window")
    if found.text.model_type == "llama":
        found.config = _as_mistral(found.config)
    text = found.text
    if not hasattr(text, "sliding_window"):
        raise DoesNotFit("reach", "the model's own, for its config has no sliding_window", "window")
    text.sliding_window, found.window = window, window
    if getattr(text, "layer_types", None):
        text.layer_types = ["sliding_attention"] * len(layers)
    if hasattr(text, "use_sliding_window"):
        text.use_sliding_window, text.max_window_layers = True, 0
    return found


def _as_mistral(config: Any) -> Any:
    """Llama's weights under Mistral's name, whose attention is Llama's with a window."""
    if config.attention_bias or config.mlp_bias:
        raise DoesNotFit("reach", "the model's own where projections have biases", "window")
    values = {**config.to_dict(), "model_type": "mistral", "architectures": ["MistralForCausalLM"]}
    return MistralConfig.from_dict(values)
