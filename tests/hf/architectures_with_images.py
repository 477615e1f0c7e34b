"""A small model with random weights of every architecture of transformers that reads texts with images.

Those that transformers calls causal language models too are in `architectures`. Texts are read alone: here the part
that sees is only made small, by general sizes where its config has fields of those names, and by what
`architectures.json` says beside that.
"""

import dataclasses
from typing import Any

import torch
from transformers import CONFIG_MAPPING, AutoModelForImageTextToText
from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES as CLASSES

from hf.architectures import MOST, NAMES, STATED, general, with_norms

NAMES_WITH_IMAGES = sorted(set(CLASSES) - set(NAMES))
SEEING = STATED["seeing"]


def small_with_images(name: str) -> Any:
    """The model, whose norms are not left at 1, where they would hide."""
    try:
        config = _config(name)
        with torch.device("meta"):
            count = sum(p.numel() for p in AutoModelForImageTextToText.from_config(config).parameters())
    except Exception as reason:  # of any kind: a config of general sizes does not fit every architecture
        raise ValueError(f"{type(reason).__name__}: {reason}") from reason
    if count > MOST:
        raise ValueError(f"{name} has {count:,} parameters: say in architectures.json what is small")
    torch.manual_seed(0)
    model = AutoModelForImageTextToText.from_config(config, attn_implementation="eager").eval()
    model.generation_config.suppress_tokens = [SEEING["image_token_id"], SEEING["video_token_id"]]
    return with_norms(model)


def _config(name: str) -> Any:
    kind, own = CONFIG_MAPPING[name], STATED["own"].get(name, {})
    fields = {field.name for field in dataclasses.fields(kind)}
    stated = {key: value for key, value in SEEING.items() if key in fields and "token" in key}
    for key, part in (getattr(kind, "sub_configs", None) or {}).items():
        sizes = _part(kind, key, part)
        if sizes is not None:
            stated[key] = {**sizes, **own.get(key, {})}
    if not any("text" in key or "llm" in key for key in stated):
        stated |= general(kind)
    parts = {key for key in own if isinstance(stated.get(key), dict)}  # these are merged above
    return kind(**{**stated, **{key: value for key, value in own.items() if key not in parts}})


def _part(kind: type, key: str, part: type) -> dict[str, Any] | None:
    """The sizes of a part; None where the architecture leaves it out by itself."""
    usual = getattr(kind(), key, None) if part.__name__ == "AutoConfig" else part
    if usual is None:
        return None
    type_of_part = usual if isinstance(usual, type) else type(usual)
    named = {} if part is type_of_part else {"model_type": type_of_part.model_type}
    if "text" in key or "llm" in key:
        return {**named, **general(type_of_part), **STATED["own"].get(type_of_part.model_type, {})}
    fields = {field.name for field in dataclasses.fields(type_of_part)}
    return {**named, **{name: value for name, value in SEEING.items() if name in fields and "token" not in name}}
