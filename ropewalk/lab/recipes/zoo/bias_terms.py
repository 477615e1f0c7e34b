"""What biases on queries and keys add to the logits, by distance.

    (q + a) R k' = q R k + a R k + q R b + a R b,   k' = k + b, R the rotation by the distance

Source: Su 2023, kexue.fm/9577: the last term falls with the distance and is the largest of the four, which makes
attention local.

Legend: b text, n token, h head, d dimension; i query, j key.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

TERMS = ("both contents", "bias and key", "query and bias", "both biases")
TEXTS = 16  # of the held-out ones; the terms differ little between texts


def bias_terms(model: PreTrainedModel, held_out: Tensor, trained_len: int) -> list[list[list[float]]]:
    """Each term's mean by distance up to twice the trained length, of each text: [term, text, distance]."""
    ids = held_out[:TEXTS, -2 * trained_len :]
    decoder: Any = model.base_model
    attentions = [layer.self_attn for layer in decoder.layers]
    outputs = _outputs(model, [part for one in attentions for part in (one.q_proj, one.k_proj)], ids)
    angles = torch.arange(ids.shape[1], dtype=torch.float64)[:, None] * decoder.rotary_emb.inv_freq.double()
    of_layers = [
        _terms(query, attention.q_proj.bias, key, attention.k_proj.bias, angles)
        for attention, query, key in zip(attentions, outputs[::2], outputs[1::2], strict=True)
    ]
    means = torch.stack(of_layers).mean(0)
    return [[[round(value, 5) for value in text] for text in term] for term in means.tolist()]


def _outputs(model: PreTrainedModel, modules: Sequence[nn.Module], ids: Tensor) -> list[Tensor]:
    """What some modules give while the model reads, in their order."""
    outputs: dict[nn.Module, Tensor] = {}
    with ExitStack() as undo, torch.no_grad():
        for module in modules:
            undo.callback(module.register_forward_hook(lambda one, _, output: outputs.update({one: output})).remove)
        model(input_ids=ids, use_cache=False)
    return [outputs[module] for module in modules]


def _terms(query: Tensor, a: Tensor, key: Tensor, b: Tensor, angles: Tensor) -> Tensor:
    """The means of one layer, in the order of TERMS: [term, text, distance]."""
    with torch.no_grad():
        queries, keys = (query - a, a.expand_as(query)), (key - b, b.expand_as(key))
    return torch.stack([_by_distance(one, other, angles) for other in keys for one in queries])


def _by_distance(query: Tensor, key: Tensor, angles: Tensor) -> Tensor:
    """The logit of two rotated parts, averaged over heads and over all queries with a key so far away."""
    q, k = _rotated(query, angles), _rotated(key, angles)
    scores = torch.einsum("bihd,bjhd->bij", q, k) / q.shape[2] / q.shape[3] ** 0.5
    length = scores.shape[1]
    return torch.stack([scores.diagonal(-far, 1, 2).mean(1) for far in range(length)], dim=1)


def _rotated(x: Tensor, angles: Tensor) -> Tensor:
    """Rotated by position: pairs are half a head apart."""
    pairs = angles.shape[1]
    first, second = x.double().reshape(*x.shape[:2], -1, 2, pairs).unbind(3)
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
