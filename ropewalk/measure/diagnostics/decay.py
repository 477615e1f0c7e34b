"""The decay of attention with distance, by the method's formula alone.

    g(s) = logit(n-1, n-1-s)    where every query and key is one vector, equal in all pairs, with <x, x> = sqrt(d):
                                scale(n-1) (2/d) sum_i cos(shown(s) theta_i) + bias(shown(s)) under full rotation

The expected similarity of a token to an equal one at a distance, divided by that without rotation (Men et al. 2024,
Base of RoPE Bounds Context Length, arXiv:2405.14591, sec. 4; the bound of Su et al. 2021, RoFormer, arXiv:2104.09864,
sec. 3.4.3, is its envelope). For the last row of a text of n tokens; shown(s) is the effective distance. NaN where a
key is out of reach.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from ropewalk.equation import reference_logits
from ropewalk.extension.extension import Extension
from ropewalk.methods.facts import Facts


def decay(extension: Extension, facts: Facts, length: int, distances: Sequence[int] | None = None) -> Tensor:
    """g(s) for s = 0 .. length-1, float64; of the first head, and of the first layer if layers differ.

    With `distances`, for these alone: they ascend from 0, and each is below the length.
    """
    plain = replace(facts, softcap=None, sinks=False, weighted=False)
    first_layer = replace(extension.at_layer(0, facts), positions=None, surgery=())
    weights = first_layer.weights(plain, torch.Generator().manual_seed(0))
    if not first_layer.biases and not weights:  # only these differ between heads
        plain = replace(plain, heads=1, kv_heads=None)
    keys = torch.arange(length) if distances is None else length - 1 - torch.tensor(distances).flip(0)
    x = torch.full((1, 1, 1, facts.head_dim), facts.head_dim**-0.25, dtype=torch.float64)
    # Equal in both halves of a pair: rotating one against the other leaves the cosine.
    q, k = x.expand(-1, plain.heads, -1, -1), x.expand(-1, plain.groups, len(keys), -1)
    logits = reference_logits(q, k, first_layer, plain, positions_bj=keys[None], weights=weights)
    by_distance = logits[0, 0, 0].flip(0)
    return by_distance.masked_fill(by_distance.isinf(), math.nan)
