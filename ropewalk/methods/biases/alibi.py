"""ALiBi: a penalty that grows linearly with distance, steeper in some heads than in others; no rotation.

    bias_h = -m_h distance
    m_h    = 2^(-8h/H),   h = 1..H   where H is a power of two,
             otherwise those of the next lower power P, followed by every second slope of 2P

Source: Press et al. 2021, arXiv:2108.12409, sec. 3; ofirpress/attention_with_linear_biases,
fairseq/models/transformer.py.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ropewalk.methods.biases.bias import Bias, Weights, per_head
from ropewalk.methods.facts import Facts


@dataclass(frozen=True, kw_only=True)
class ALiBi(Bias):
    name = "alibi"

    def bias(self, distance: Tensor, query: Tensor, facts: Facts, weights: Weights) -> Tensor:
        return -per_head(slopes(facts.heads).to(distance.device), distance) * distance


def slopes(heads: int) -> Tensor:
    """One slope per head, in the order of the released code (not monotone unless heads is a power of two)."""
    power = 1 << (heads.bit_length() - 1)
    return torch.cat([_geometric(power), _geometric(2 * power)[0::2][: heads - power]])


def _geometric(heads: int) -> Tensor:
    return 2.0 ** (-8 * torch.arange(1, heads + 1, dtype=torch.float64) / heads)
