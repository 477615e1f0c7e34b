"""Hidden states in two dimensions: how they depend on the position.

    X = hidden states of all tokens of a layer, centred;   X^T X = V diag(l) V^T;   points = X (v_1, v_2)

The first tokens are far from all others, even in models with relative positions; tokens beyond the trained length may
leave the region of training (Han et al. 2023, LM-Infinite, arXiv:2308.16137, sec. 3 and fig. 1c).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ropewalk.errors import InvalidValue
from ropewalk.hf.attach.handle import host_of
from ropewalk.hf.probe.probe import device_of, quiet


class StatePlane(NamedTuple):
    """Tokens of one layer as points, text after text."""

    layer: int  # 0: the embeddings; n: the output of the n-th layer
    share: float  # of the variance in these two dimensions
    positions: tuple[int, ...]
    points: tuple[tuple[float, float], ...]


def states_in_a_plane(model: nn.Module, ids_bn: Tensor, *, layers: Sequence[int] | None = None) -> list[StatePlane]:
    """By default of the first, the middle and the last layer; for extensions of either mode."""
    host: Any = host_of(model)
    with quiet(host), torch.no_grad():
        inputs = {"input_ids": ids_bn.to(device_of(host)), "use_cache": False, "output_hidden_states": True}
        states = host.base_model(**inputs).hidden_states
    count = len(states) - 1
    chosen = sorted({1, max(1, count // 2), count}) if layers is None else list(layers)
    if any(not 0 <= layer <= count for layer in chosen):
        raise InvalidValue("layers", f"from 0 (the embeddings) to {count}", chosen)
    return [_plane(layer, states[layer]) for layer in chosen]


def _plane(layer: int, state_bnd: Tensor) -> StatePlane:
    x = state_bnd.double().cpu().flatten(0, 1)
    x = x - x.mean(0)
    variance, axes = torch.linalg.eigh(x.mT @ x)  # in rising order
    first = axes[:, -2:].flip(1)
    # The sign of an axis is arbitrary: make its largest number positive, so that machines agree.
    first = first * first.gather(0, first.abs().argmax(0, keepdim=True)).sign()
    share = float(variance[-2:].sum() / variance.sum().clamp(min=1e-300))
    positions = tuple(range(state_bnd.shape[1])) * state_bnd.shape[0]
    return StatePlane(layer, share, positions, tuple(map(tuple, (x @ first).tolist())))
