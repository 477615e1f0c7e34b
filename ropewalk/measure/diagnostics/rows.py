"""Which query rows are sampled, the bins of distances, and curves of layers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ropewalk.errors import InvalidValue
from ropewalk.hf.attach.capture import CapturedLayer, capture_layers

SAMPLED_ROWS = 48  # query rows of a text that are sampled
BINS_PER_DOUBLING = 4  # of distance

OfRow = Callable[[Tensor], Tensor]  # from the weights of one row [batch, heads, keys] to a number for each head


class Curves(NamedTuple):
    """A curve for every layer over the same positions of queries or distances of keys."""

    at: tuple[float, ...]
    layers: tuple[tuple[float, ...], ...]


def some_rows(length: int, count: int = SAMPLED_ROWS) -> list[int]:
    """Evenly spaced positions, including the last."""
    if count < 1:
        raise InvalidValue("rows", "at least 1", count)
    return sorted({math.ceil((n + 1) * length / count) - 1 for n in range(count)})


def curves_by_row(model: nn.Module, ids_bn: Tensor, count: int, *numbers: OfRow) -> list[Curves]:
    """For each of `numbers`: its mean over texts and heads in some rows of attention, for every layer."""
    rows = some_rows(ids_bn.shape[1], count)

    def curves(layer: CapturedLayer) -> list[tuple[float, ...]]:
        by_position = [[float(number(weights).mean()) for number in numbers] for weights in map(layer.weights, rows)]
        return [tuple(curve) for curve in zip(*by_position, strict=True)]

    by_layer = capture_layers(model, ids_bn, curves)
    return [Curves(tuple(map(float, rows)), tuple(layers)) for layers in zip(*by_layer, strict=True)]


def distance_bins(length: int) -> Tensor:
    """The bin of each distance 0 .. length-1: small distances have one each, then there are four to a doubling."""
    distance = torch.arange(length, dtype=torch.float64)
    raw = (BINS_PER_DOUBLING * (distance + 1).log2()).floor().long()
    bins: Tensor = torch.unique(raw, return_inverse=True)[1]
    return bins


def middles(bins: Tensor) -> tuple[float, ...]:
    """The mean distance of each bin."""
    distance = torch.arange(len(bins), dtype=torch.float64)
    return tuple((torch.bincount(bins, distance) / torch.bincount(bins)).tolist())
