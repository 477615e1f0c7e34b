"""Formulas that engines share, in float64. They need torch and the standard library alone.

Source: transformers 5.23, modeling_rope_utils.py; the same formulas stand in vLLM, SGLang and llama.cpp. Each engine's
file says which of them it uses, with which numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

USUAL_BASE = 10_000.0
BETAS = (32.0, 1.0)  # beta_fast and beta_slow, where a config has none


def plain(base: float, dims: int) -> Tensor:
    """base^(-2i/d)."""
    return base ** (-torch.arange(0, dims, 2, dtype=torch.float64) / dims)


def yarn(
    base: float, dims: int, factor: float, original: float, betas: tuple[float, float] = BETAS, truncate: bool = True
) -> Tensor:
    """YaRN's ramp over the index of the pairs."""
    first, last = (dims * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(base)) for turns in betas)
    if truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, dims - 1)
    last += 0.001 * (first == last)
    slowed = ((torch.arange(dims // 2, dtype=torch.float64) - first) / (last - first)).clamp(0, 1)
    return plain(base, dims) * (1 - slowed + slowed / factor)


def llama3(base: float, dims: int, factor: float, original: float, low: float, high: float) -> Tensor:
    """Llama 3.1's ramp over the rotations of the pairs."""
    table = plain(base, dims)
    turns = original * table / (2 * math.pi)
    kept = (turns > low).double() if low == high else ((turns - low) / (high - low)).clamp(0, 1)
    return table * (kept + (1 - kept) / factor)


def rebased(base: float, dims: int, times: float) -> Tensor:
    """NTK's larger base: the slowest pair is slowed by `times`."""
    return plain(base * times ** (dims / (dims - 2)), dims)


def divided(base: float, dims: int, divisors: Sequence[float]) -> Tensor:
    """A divisor for each pair."""
    return plain(base, dims) / torch.tensor(divisors, dtype=torch.float64)


def proportional(base: float, dims: int, share: float) -> Tensor:
    """Gemma 4's: the first pairs rotate with the whole head in the exponent, the others not at all."""
    table = plain(base, dims)
    table[int(share * dims // 2) :] = 0
    return table


def yarn_temperature(factor: float, coefficient: float = 1.0) -> float:
    """YaRN's own: 0.1 ln(factor) + 1, with mscale as its coefficient where a config has one."""
    return 0.1 * coefficient * math.log(factor) + 1 if factor > 1 else 1.0


def longrope_temperature(times: float, original: float) -> float:
    """LongRoPE's own: sqrt(1 + ln(times) / ln(original))."""
    return math.sqrt(1 + math.log(times) / math.log(original)) if times > 1 else 1.0


def betas_of(part: Mapping[str, Any]) -> tuple[float, float]:
    """The ends of YaRN's ramp in a config, in rotations."""
    return float(part.get("beta_fast") or BETAS[0]), float(part.get("beta_slow") or BETAS[1])
