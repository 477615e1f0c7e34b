"""The four terms of a product whose queries and keys have biases, by distance.

    (q_i + a)^T R_{j-i} (k_j + b) = q^T R k + a^T R k + q^T R b + a^T R b        each over sqrt(d)

The last depends on the distance alone. It is said to fall with it in trained models, to be the largest, and so to keep
attention near (Su 2023, kexue.fm/9577); the author later found the effect hard to reproduce. Biases that an extension
adds to the logits, and caps, are left out: they are no part of the product.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ropewalk.evaluation.diagnostics.rows import ROWS, Curves, distance_bins, middles, some_rows
from ropewalk.hf.attach.capture import CapturedLayer, capture_biases, capture_layers


class BiasTerms(NamedTuple):
    """Each term by distance, for each layer."""

    both: Curves  # q^T R k
    query_bias: Curves  # a^T R k
    key_bias: Curves  # q^T R b
    biases: Curves  # a^T R b

    @property
    def any(self) -> bool:
        """Whether there are biases at all."""
        return any(value for curves in self[1:] for layer in curves.layers for value in layer if value == value)


def bias_terms(model: nn.Module, ids_bn: Tensor, *, rows: int = ROWS) -> BiasTerms:
    """Means over texts, heads and some query rows. Refused where queries and keys are no sum, as under a norm."""
    length = ids_bn.shape[1]
    bins, biases = distance_bins(length), iter(capture_biases(model))
    found = capture_layers(model, ids_bn, lambda heard: _of(parted(heard, next(biases)), some_rows(length, rows), bins))
    return BiasTerms(*(Curves(middles(bins), layers) for layers in zip(*found, strict=True)))


def parted(heard: CapturedLayer, bias: CapturedLayer) -> list[CapturedLayer]:
    """The same layer with queries and keys of one part each, in the order of the terms."""
    own = heard.layer._replace(
        extension=replace(heard.layer.extension, biases=()), facts=replace(heard.layer.facts, softcap=None)
    )
    a, b = bias.q_bhid.double().expand_as(heard.q_bhid), bias.k_bgjd.double().expand_as(heard.k_bgjd)
    q, k = heard.q_bhid - a, heard.k_bgjd - b
    return [CapturedLayer(own, *pair) for pair in ((q, k), (a, k), (q, b), (a, b))]


def _of(parts: list[CapturedLayer], rows: list[int], bins: Tensor) -> list[tuple[float, ...]]:
    return [_means(part, rows, bins) for part in parts]


def _means(part: CapturedLayer, rows: list[int], bins: Tensor) -> tuple[float, ...]:
    """The mean of a product in each bin of distances, over what is within reach."""
    count = int(bins.max()) + 1
    total, number = torch.zeros(count, dtype=torch.float64), torch.zeros(count, dtype=torch.float64)
    for row in rows:
        products = part.logits(row).flatten(0, -2)
        within = products > -torch.inf
        at = bins[: row + 1].flip(0).expand_as(products)[within]
        total += torch.bincount(at, products[within], minlength=count)
        number += torch.bincount(at, minlength=count)
    return tuple((total / number).tolist())
