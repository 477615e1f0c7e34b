"""What a pass is asked for: rows of logits, angles of pairs, terms of biases."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ropewalk.errors import InvalidValue
from ropewalk.extension.extension import Extension
from ropewalk.hf.attach.attention import CapturedLayer, capture_biases, capture_layers
from ropewalk.hf.attach.handle import host_of
from ropewalk.hf.probe.host import device_of, quiet
from ropewalk.methods.facts import Facts
from ropewalk.methods.frequencies import RoPE
from ropewalk.methods.reach import Reach

# Hidden states in two dimensions: how they depend on the position.
#
#     X = hidden states of all tokens of a layer, centred;   X^T X = V diag(l) V^T;   points = X (v_1, v_2)
#
# The first tokens are far from all others, even in models with relative positions; tokens beyond the trained length may
# leave the region of training (Han et al. 2023, LM-Infinite, arXiv:2308.16137, sec. 3 and fig. 1c).


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


# Which query rows are sampled, the bins of distances, and curves of layers.


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


# Rotations of each rotary pair: which angles occurred in training, and which a longer text needs.
#
#     turns_i = n theta_i / 2 pi          n = largest distance + 1
#
# in training with the trained theta at the trained length; in a longer text with the method's theta at the longest
# effective distance of its reach. A pair without a full rotation in training has met no angle beyond its last, so
# extrapolation fails there (Peng et al. 2023, YaRN, arXiv:2309.00071, sec. 3.2; wavelength 2 pi / theta_i).


class PairAngles(NamedTuple):
    """One pair of dimensions."""

    pair: int
    theta: float  # radians per token under the method
    slowed_by: float  # infinite if it does not rotate
    turns_trained: float
    turns_asked: float  # in the last row of a text of the length

    @property
    def unseen(self) -> bool:
        """Whether it meets angles that did not occur in training: no full rotation there, and more of it now."""
        return self.turns_trained < 1 and self.turns_asked > self.turns_trained * (1 + 1e-9)


def pair_angles(extension: Extension, facts: Facts, length: int) -> list[PairAngles]:
    """Of every pair, fastest first, for texts of a length; of the first layer if layers differ."""
    first_layer = extension.at_layer(0, facts)
    before, after = RoPE().table(facts, length).inv_freq, first_layer.frequencies_or_rope.table(facts, length).inv_freq
    reached = _furthest(first_layer.reach_or_causal, length - 1, first_layer.turns(facts)) + 1
    full = 2 * math.pi
    # A partial rotation has no entry for the pairs that it leaves alone.
    pairs = zip_longest(before.tolist(), after.tolist(), reached.tolist(), fillvalue=0.0)
    return [
        PairAngles(
            pair=index,
            theta=theta,
            slowed_by=original / theta if theta else math.inf,
            turns_trained=facts.trained_len * original / full,
            turns_asked=most * theta / full,
        )
        for index, (original, theta, most) in enumerate(pairs)
    ]


def _furthest(reach: Reach, i: int, turns: Tensor) -> Tensor:
    """The largest effective distance of each pair in a row: that of the first key of a span."""
    row, most = torch.tensor([i]), torch.zeros_like(turns)
    for span in reach.spans():
        start, stop = span.bounds(row)
        if start < stop:
            places = span.q_rotated(row, turns).double(), span.k_rotated(start, turns).double()
            most = torch.maximum(most, (places[0] - places[1]).flatten().expand_as(turns))
    return most


# The four terms of a product whose queries and keys have biases, by distance.
#
#     (q_i + a)^T R_{j-i} (k_j + b) = q^T R k + a^T R k + q^T R b + a^T R b        divided by sqrt(d)
#
# The last term depends only on the distance. It is reported to be the largest in trained models and to fall with
# distance, which keeps attention near (Su 2023, kexue.fm/9577); the author later found this hard to reproduce. Caps,
# and biases that an extension adds to the logits, are left out: they are not part of the product.


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
