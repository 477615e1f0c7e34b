"""The four terms of a product whose queries and keys have biases, by distance.

    (q_i + a)^T R_{j-i} (k_j + b) = q^T R k + a^T R k + q^T R b + a^T R b        divided by sqrt(d)

The last term depends only on the distance. It is reported to be the largest in trained models and to fall with
distance, which keeps attention near (Su 2023, kexue.fm/9577); the author later found this hard to reproduce. Caps, and
biases that an extension adds to the logits, are left out: they are not part of the product.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ropewalk.hf.attach.capture import CapturedLayer, capture_biases, capture_layers
from ropewalk.measure.diagnostics.rows import SAMPLED_ROWS, Curves, distance_bins, middles, some_rows


class BiasTerms(NamedTuple):
    """The terms by distance, for every layer."""

    both: Curves  # q^T R k
    query_bias: Curves  # a^T R k
    key_bias: Curves  # q^T R b
    biases: Curves  # a^T R b

    @property
    def any(self) -> bool:
        """Whether any bias is not zero."""
        return any(value for curves in self[1:] for layer in curves.layers for value in layer if value == value)


def bias_terms(model: nn.Module, ids_bn: Tensor, *, rows: int = SAMPLED_ROWS) -> BiasTerms:
    """Means over texts, heads and some query rows. Refused if a norm follows the biases, so that there is no sum."""
    length = ids_bn.shape[1]
    bins, biases = distance_bins(length), iter(capture_biases(model))
    at = some_rows(length, rows)
    by_layer = capture_layers(model, ids_bn, lambda layer: _curves_of(separate(layer, next(biases)), at, bins))
    return BiasTerms(*(Curves(middles(bins), layers) for layers in zip(*by_layer, strict=True)))


def separate(layer: CapturedLayer, bias: CapturedLayer) -> list[CapturedLayer]:
    """The layer with one part of its queries and of its keys, four times, in the order of the terms."""
    plain = replace(layer.layer.extension, biases=())
    context = layer.layer._replace(extension=plain, facts=replace(layer.layer.facts, softcap=None))
    a, b = bias.q_bhid.double().expand_as(layer.q_bhid), bias.k_bgjd.double().expand_as(layer.k_bgjd)
    q, k = layer.q_bhid - a, layer.k_bgjd - b
    return [CapturedLayer(context, *pair) for pair in ((q, k), (a, k), (q, b), (a, b))]


def _curves_of(parts: list[CapturedLayer], rows: list[int], bins: Tensor) -> list[tuple[float, ...]]:
    return [_means(part, rows, bins) for part in parts]


def _means(part: CapturedLayer, rows: list[int], bins: Tensor) -> tuple[float, ...]:
    """The mean of a product in each bin of distances, over keys within reach."""
    count = int(bins.max()) + 1
    total, number = torch.zeros(count, dtype=torch.float64), torch.zeros(count, dtype=torch.float64)
    for row in rows:
        products = part.logits(row).flatten(0, -2)
        within = products > -torch.inf
        at = bins[: row + 1].flip(0).expand_as(products)[within]
        total += torch.bincount(at, products[within], minlength=count)
        number += torch.bincount(at, minlength=count)
    return tuple((total / number).tolist())
