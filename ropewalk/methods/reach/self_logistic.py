"""SELF: Self-Extend whose groups grow from the text's beginning on, along a logistic curve.

    f(g) = C / (1 + (C-1) e^(-r g)),   group g = 0, 1, 2, ... holds floor(f(g)) tokens, from 1 to C - 1
    G(x) = 0 at x = 0, else 1 + the group of token x - 1

    [i-w+1, i+1):   q_at = i,              k_at = j
    [0, i-w+1):     q_at = G(i-w) + w,     k_at = G(j)

Source: Dang et al. 2025, arXiv:2505.17296; alexeipc/SELF-LLM, self_extend_patch/attn_method (r = 0.02, C = 33) and
Llama.py. The paper speaks of groups that grow with the distance; what its prefill computes is this: they grow with the
key's position, so that a query far into the text sees its first keys apart and the others in large groups.

Deviation: the authors' decoding puts a far key j at distance w - 1 + G(j), as if the text ran backwards; here decoding
equals the prefill. Where the curve jumps over a size (r C above 4), their prefill also leaves out the size before it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated

import torch
from torch import Tensor

from ropewalk.methods.facts import Facts
from ropewalk.methods.reach.reach import Reach, Span, always, before, last, require_trained
from ropewalk.methods.record import AT_LEAST_ONE, POSITIVE, Rule

LARGEST_GROUP = 50_000  # tokens; groups of each size are counted one by one
GROUPS = Rule(f"above 1 and at most {LARGEST_GROUP:,}", lambda value: 1 < value <= LARGEST_GROUP)


@dataclass(frozen=True, kw_only=True)
class SELF(Reach):
    name = "self_logistic"
    window: Annotated[int, AT_LEAST_ONE, "w: keys nearer than this keep their positions"]
    capacity: Annotated[int, GROUPS, "C: groups have fewer tokens than this"]
    rate: Annotated[float, POSITIVE, "r: how fast groups grow, by group"] = 0.02

    def check_against(self, facts: Facts) -> None:
        require_trained("window", self.window, facts, largest=facts.trained_len - 1)

    def spans(self) -> tuple[Span, ...]:
        near = last(self.window)
        far = Span(
            start=always(0),
            stop=before(self.window),
            q_at=lambda i: self.grouped(i - self.window) + self.window,
            k_at=self.grouped,
        )
        return near, far

    def grouped(self, position: Tensor) -> Tensor:
        """G. Queries within the window, which see no far key, have a place as well."""
        tokens, groups = (position.new_tensor(column) for column in _before(self.capacity, self.rate))
        size = torch.searchsorted(tokens, position.contiguous()).clamp(min=1)
        return groups[size - 1] - (tokens[size - 1] - position) // size


@lru_cache(maxsize=64)
def _before(capacity: int, rate: float) -> tuple[list[int], list[int]]:
    """How many tokens and how many groups come before those of each size, 1 to C - 1."""
    tokens, groups = [0], [0]
    for size in range(1, capacity - 1):
        # The first group of the next size: where the curve reaches it.
        first = math.ceil((math.log(size + 1) + math.log(capacity - 1) - math.log(capacity - size - 1)) / rate)
        tokens.append(tokens[-1] + size * (first - groups[-1]))
        groups.append(first)
    return tokens, groups
