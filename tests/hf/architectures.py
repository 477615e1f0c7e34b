"""A small model with random weights of every causal architecture of transformers, made here.

Every name of transformers' own registry is built: by general sizes where its config has fields of those names, and
by what `architectures.json` says of it beside that. The sizes were found by hand for transformers 5.23, so that each
feature is there at 112 tokens: windows, top-k and blocks are of 40 tokens, the trained length is 64. Indexers have as
many heads as in releases: with few, many scores are 0, and which of equal scores is chosen depends on the layout.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import CONFIG_MAPPING, AutoModelForCausalLM
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CLASSES

NAMES = sorted(CLASSES)
WINDOW, MOST = 40, 20_000_000
STATED = json.loads((Path(__file__).parent / "architectures.json").read_text())
# What is left out where an architecture leaves it out by itself.
UNLESS_STATED = ("q_lora_rank", "sliding_window", "num_local_experts", "num_experts", "n_inner")
DROPPING = ("dropout", "hidden_dropout")


def small(name: str) -> Any:
    """The model, whose norms are not left at 1, where they would hide."""
    config, kind = _config(name), getattr(transformers, CLASSES[name], None)
    torch.manual_seed(0)
    if type(config) is CONFIG_MAPPING[name]:
        model = AutoModelForCausalLM.from_config(config, attn_implementation=_attention(config)).eval()
    else:  # the part of a larger model that writes
        model = kind(config).eval()
    return with_norms(model)


def with_norms(model: Any) -> Any:
    """The model with other weights in its norms."""
    for parameter in model.parameters():
        if parameter.dim() == 1 and parameter.is_floating_point():
            parameter.data.add_(0.3 * torch.rand_like(parameter))
    return model


def _attention(config: Any) -> str | None:
    """Eager, where the architecture has it; weights are drawn on no device, to see how many there are."""
    with torch.device("meta"):
        try:
            model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
        except ValueError:
            return None
    count = sum(parameter.numel() for parameter in model.parameters())
    assert count <= MOST, f"{type(model).__name__} has {count:,} parameters: say in architectures.json what is small"
    return "eager"


def _config(name: str) -> Any:
    kind, own = CONFIG_MAPPING[name], STATED["own"].get(name, {})
    parts = getattr(kind, "sub_configs", None) or {}
    if "decoder" in parts:
        return parts["decoder"](**{**general(parts["decoder"]), **own})
    given = {**general(kind), **own}
    text = getattr(parts.get("text_config"), "model_type", "")
    if text:
        given["text_config"] = {
            **general(parts["text_config"]),
            **STATED["own"].get(text, {}),
            **own.get("text_config", {}),
        }
    if "text_config" in parts:
        given = {key: value for key, value in given.items() if key == "text_config" or key in own or "token_id" in key}
    return kind(**given)


def general(kind: type) -> dict[str, Any]:
    """The general sizes that a config has fields for; a window where it has one by itself."""
    fields = {field.name for field in dataclasses.fields(kind)}
    found = {key: value for key, value in STATED["generic"].items() if key in fields}
    for alias, real in getattr(kind, "attribute_map", {}).items():
        if real in fields and real in STATED["generic"]:
            found.pop(alias, None)
    usual = _usual(kind)
    for key in UNLESS_STATED:
        if usual is not None and getattr(usual, key, None) is None:
            found.pop(key, None)
    if isinstance(getattr(usual, "sliding_window", None), int) and "sliding_window" in fields:
        found["sliding_window"] = WINDOW
    return {k: v for k, v in found.items() if k not in DROPPING or isinstance(getattr(usual, k, None), int | float)}


def _usual(kind: type) -> Any:
    """The config as it comes; some cannot be made without being told more."""
    try:
        return kind()
    except Exception:
        return None
