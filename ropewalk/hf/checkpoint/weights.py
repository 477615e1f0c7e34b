"""All weights of a model, wherever they are, and whether another model has the same."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel


def whole_state(host: PreTrainedModel) -> dict[str, Tensor]:
    """The state dict with all numbers: those that accelerate keeps on disk are read."""
    state = dict(host.state_dict())
    if not any(isinstance(value, Tensor) and value.device.type == "meta" for value in state.values()):
        return state
    from accelerate.utils.modeling import get_state_dict_offloaded_model

    read: dict[str, Tensor] = get_state_dict_offloaded_model(host)
    return state | read


def first_difference(host: PreTrainedModel, again: PreTrainedModel) -> str:
    """The first of the loaded weights that is not the model's, number by number; empty where none is."""
    state, loaded = whole_state(host), again.state_dict()
    return next((name for name, value in sorted(loaded.items()) if not is_same(value, state.get(name))), "")


def is_same(value: Any, other: Any) -> bool:
    """Whether two entries of a state dict are equal; quantised ones are compared part by part."""
    if not isinstance(value, Tensor) or not isinstance(other, Tensor):
        return bool(value == other)
    if hasattr(value, "__tensor_flatten__"):
        names = value.__tensor_flatten__()[0]
        return type(value) is type(other) and all(is_same(getattr(value, n), getattr(other, n)) for n in names)
    return torch.equal(value.cpu(), other.cpu())
