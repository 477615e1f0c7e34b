"""Logits by distance: their mean, their spread, and the largest one at each distance.

    over the sampled pairs (i, j) with i - j in a bin of distances:  mean l,  sd l,  max l      l = logit(i,j)

Distances that did not occur in training can give logits that did not either, and one of them outweighs all others (Han
et al. 2023, LM-Infinite, arXiv:2308.16137, sec. 3 and fig. 1a). Distances are true ones, not effective ones. Keys out
of reach are left out; a bin with no other keys is NaN. There are four bins to a doubling.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from ropewalk.hf.attach.capture import CapturedLayer, capture_layers
from ropewalk.measure.diagnostics.rows import SAMPLED_ROWS, Curves, distance_bins, middles, some_rows


class LogitGrowth(NamedTuple):
    """Three curves by distance for every layer."""

    mean: Curves
    spread: Curves
    largest: Curves


def logit_growth(model: nn.Module, ids_bn: Tensor, *, rows: int = SAMPLED_ROWS) -> LogitGrowth:
    """Over texts, heads and some query rows, for every layer by distance."""
    length = ids_bn.shape[1]
    bins = distance_bins(length)
    by_layer = capture_layers(model, ids_bn, lambda layer: _curves_of(layer, some_rows(length, rows), bins))
    return LogitGrowth(*(Curves(middles(bins), tuple(layers)) for layers in zip(*by_layer, strict=True)))


def _curves_of(layer: CapturedLayer, rows: list[int], bins: Tensor) -> tuple[tuple[float, ...], ...]:
    """Mean, standard deviation and maximum of a layer in each bin."""
    values, where = [], []
    for row in rows:
        logits = layer.logits(row).flatten(0, -2)  # [texts and heads, keys]
        within = logits > -torch.inf
        values.append(logits[within])
        where.append(bins[: row + 1].flip(0).expand_as(logits)[within])
    x, at, count = torch.cat(values), torch.cat(where), int(bins.max()) + 1
    number = torch.bincount(at, minlength=count)
    mean = torch.bincount(at, x, minlength=count) / number
    spread = (torch.bincount(at, (x - mean[at]).square(), minlength=count) / number).sqrt()
    largest = torch.full((count,), -torch.inf, dtype=x.dtype).scatter_reduce(0, at, x, "amax")
    largest = largest.where(number > 0, torch.nan)
    return tuple(tuple(curve.tolist()) for curve in (mean, spread, largest))
