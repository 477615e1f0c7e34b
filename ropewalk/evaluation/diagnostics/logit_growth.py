"""Logits by distance: their mean, their spread, and the largest one at each distance.

    over all looked-at pairs (i, j) with i - j in a bin of distances:  mean l,  sd l,  max l      l = logit(i,j)

Distances that training did not show can bring logits that it did not show; one such logit outweighs all others (Han et
al. 2023, LM-Infinite, arXiv:2308.16137, sec. 3 and fig. 1a). Distances are true ones, whatever a reach shows; keys out
of reach are left out, and a bin in which all are is NaN. Bins are an eighth of a decade or so wide.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from ropewalk.evaluation.diagnostics.rows import ROWS, Curves, distance_bins, middles, some_rows
from ropewalk.hf.attach.capture import CapturedLayer, capture_layers


class LogitGrowth(NamedTuple):
    """Three curves by distance for each layer."""

    mean: Curves
    spread: Curves
    largest: Curves


def logit_growth(model: nn.Module, ids_bn: Tensor, *, rows: int = ROWS) -> LogitGrowth:
    """Over texts, heads and some query rows, for each layer by distance."""
    length = ids_bn.shape[1]
    bins = distance_bins(length)
    found = capture_layers(model, ids_bn, lambda heard: _of(heard, some_rows(length, rows), bins))
    return LogitGrowth(*(Curves(middles(bins), tuple(layers)) for layers in zip(*found, strict=True)))


def _of(heard: CapturedLayer, rows: list[int], bins: Tensor) -> tuple[tuple[float, ...], ...]:
    """Mean, standard deviation and maximum of a layer in each bin."""
    values, where = [], []
    for row in rows:
        logits = heard.logits(row).flatten(0, -2)  # [texts and heads, keys]
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
