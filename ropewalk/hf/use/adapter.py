"""Adapters of peft on an extended model: saved with the sidecar beside them, and loaded onto their base model.

Only Ropewalk reads such a folder: the type of the adapter is replaced by a sentence, at which peft stops.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from ropewalk.errors import DoesNotFit, InvalidValue, Unreadable
from ropewalk.files import read_record
from ropewalk.hf.checkpoint.closed_config import ADAPTER, KEPT, KIND
from ropewalk.hf.checkpoint.fetch import fetch_adapter, fetch_model
from ropewalk.hf.load_options import UNSTATED, LoadOptions

BASE = "base_model_name_or_path"
ONLY = "default"  # peft's name of the one adapter of a model
MERGE = "merge the adapter first (merge_and_unload)"


def is_adapted(model: nn.Module) -> bool:
    """Whether peft has wrapped the model."""
    return hasattr(model, "peft_config") and hasattr(model, "get_base_model")


def require_merged(host: PreTrainedModel, task: str) -> None:
    """Refuse adapters among the modules of a model."""
    if any(".base_layer." in name for name, _ in host.named_parameters()):
        remedy = f"{MERGE}; rw.save writes an adapter of its own, where it gets peft's model"
        sentence = f"{task} needs plain weights, and the model has adapters inside"
        raise DoesNotFit.because("model", sentence, remedy=remedy)


def write_adapter(model: Any, place: Path) -> None:
    """Write the adapter. Its config stores the extension beside it."""
    if list(model.peft_config) != [ONLY]:
        known = ", ".join(model.peft_config)
        sentence = f"rw.save writes one adapter, named {ONLY}, and the model has {known}"
        raise InvalidValue.because("model", sentence, remedy="delete the others (delete_adapter)")
    if not getattr(model.peft_config[ONLY], BASE, None):
        sentence = "the adapter does not say of which model it is"
        remedy = f"load the model by from_pretrained, or set peft_config[{ONLY!r}].{BASE}"
        raise InvalidValue.because("model", sentence, remedy=remedy)
    model.save_pretrained(place)


def load_adapter(place: Path, options: LoadOptions = UNSTATED, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
    """The adapter of a folder on its base model, and what transformers says of the loading.

    `options` and `kwargs` are for the base model.
    """
    config = read_record(place / ADAPTER, "what peft wrote")
    config[KIND] = config.pop(KEPT + KIND, config.get(KIND))
    base, info = fetch_model(_base(place, config), options, **kwargs)
    return fetch_adapter(base, place, config), info


def base_of(place: Path) -> str:
    """The model that the adapter of a folder names."""
    return _base(place, read_record(place / ADAPTER, "what peft wrote"))


def _base(place: Path, config: dict[str, Any]) -> str:
    base = config.get(BASE)
    if not base or not isinstance(base, str):
        sentence = f"{place / ADAPTER} does not say of which model the adapter is"
        remedy = f"write the model's folder, or its name on the hub, there as {BASE}"
        raise Unreadable.because("adapter", sentence, remedy=remedy)
    return base
