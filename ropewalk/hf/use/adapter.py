"""Adapters of peft on an extended model: saved with the sidecar beside them, and loaded onto their base model.

Only Ropewalk reads such a folder: the type of the adapter is replaced by a sentence, at which peft and engines stop.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from ropewalk.errors import DoesNotFit, InvalidValue
from ropewalk.files import holds, read_bytes, read_json
from ropewalk.folders import write_whole
from ropewalk.hf.checkpoint.closed_config import KEPT, SENTENCE
from ropewalk.hf.checkpoint.fetch import fetch_adapter, fetch_model

FILE, TYPE, BASE = "adapter_config.json", "peft_type", "base_model_name_or_path"
ONLY = "default"  # peft's name of the one adapter of a model
MERGE = "merge the adapter first (merge_and_unload)"


def is_adapted(model: nn.Module) -> bool:
    """Whether peft has wrapped the model."""
    return hasattr(model, "peft_config") and hasattr(model, "get_base_model")


def is_adapter(place: Path) -> bool:
    """Whether a folder has an adapter and no model."""
    return holds((place / FILE).is_file) and not holds((place / "config.json").is_file)


def require_merged(host: PreTrainedModel, task: str) -> None:
    """Refuse adapters among the modules of a model."""
    if any(".base_layer." in name for name, _ in host.named_parameters()):
        remedy = f"{MERGE}; rw.save writes an adapter of its own, where it gets peft's model"
        sentence = f"{task} needs plain weights, and the model has adapters inside"
        raise DoesNotFit.because("model", sentence, remedy=remedy)


def write_adapter(model: Any, place: Path) -> None:
    """Write the adapter, and close its config."""
    if list(model.peft_config) != [ONLY]:
        known = ", ".join(model.peft_config)
        sentence = f"rw.save writes one adapter, named {ONLY}, and the model has {known}"
        raise InvalidValue.because("model", sentence, remedy="delete the others (delete_adapter)")
    if not getattr(model.peft_config[ONLY], BASE, None):
        sentence = "the adapter does not say of which model it is"
        remedy = f"load the model by from_pretrained, or set peft_config[{ONLY!r}].{BASE}"
        raise InvalidValue.because("model", sentence, remedy=remedy)
    type(model).save_pretrained(model, place)
    config = _config(place)
    write_whole(place / FILE, json.dumps({**config, KEPT + TYPE: config[TYPE], TYPE: SENTENCE}, indent=2) + "\n")


def load_adapter(place: Path, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
    """The adapter of a folder on its base model, which `kwargs` are for, and what transformers says of the loading."""
    config = _config(place)
    config[TYPE] = config.pop(KEPT + TYPE, config[TYPE])
    base, info = fetch_model(config[BASE], **kwargs)
    return fetch_adapter(base, place, config), info


def _config(place: Path) -> dict[str, Any]:
    config: dict[str, Any] = read_json(read_bytes(place / FILE, "adapter", "what peft wrote"), str(place / FILE))
    return config
