"""Fold a temperature into the weights of the queries, their norm or projection, for engines that read none."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from ropewalk.errors import DoesNotFit
from ropewalk.hf.checkpoint.sidecar import whole_state
from ropewalk.hf.runtime.layer import ExtendedLayer


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
