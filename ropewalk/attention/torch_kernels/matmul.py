"""What a fused kernel computes, by matmul in blocks: used where there is no kernel, and to check the kernels.

Legend: b batch, h query head, g key head, i query, j key, d head dimension.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ropewalk.attention.rotation.precision import to_compute_dtype

QUERIES_PER_MATMUL = 256  # queries per matmul


class PartialAttention(NamedTuple):
    """The attention to some of the keys: the normalised output, and the logarithm of the sum it was divided by."""

    out_bhid: Tensor
    lse_bhi: Tensor


class Gradients(NamedTuple):
    """The gradients of a part's queries, keys and values."""

    q_bhid: Tensor
    k_bgjd: Tensor
    v_bgjd: Tensor


class TileMask(NamedTuple):
    """Which keys the rows of a tile see: all, unless one of these is set.

    In a triangle, which has as many rows as keys, row t sees the keys up to its own. With a window it sees the last
    `window` keys up to key `t + keys - rows`, as far as there are so many. A mask is added to the logits.
    """

    triangle: bool = False
    window: int | None = None
    mask_ij: Tensor | None = None


def forward(q_bhid: Tensor, k_bgjd: Tensor, v_bgjd: Tensor, tile_mask: TileMask) -> PartialAttention:
    """The output and its log-sum-exp."""
    k_bhjd, v_bhjd = (_per_query_head(x, q_bhid) for x in (k_bgjd, v_bgjd))
    parts = []
    for first in range(0, q_bhid.shape[2], QUERIES_PER_MATMUL):
        logit = _logits(q_bhid, k_bhjd, first, tile_mask)
        lse = torch.logsumexp(logit, -1)
        weight = torch.exp(logit - lse[..., None].where(lse[..., None] > -torch.inf, 0))
        parts.append(PartialAttention((weight @ v_bhjd).to(q_bhid.dtype), lse))
    return PartialAttention(*(torch.cat(blocks, 2) for blocks in zip(*parts, strict=True)))


def backward(
    grad_bhid: Tensor, q_bhid: Tensor, k_bgjd: Tensor, v_bgjd: Tensor, whole: PartialAttention, tile_mask: TileMask
) -> Gradients:
    """The gradients, from the output of the whole."""
    k_bhjd, v_bhjd = (_per_query_head(x, q_bhid) for x in (k_bgjd, v_bgjd))
    scale, by_key = 1 / math.sqrt(q_bhid.shape[-1]), torch.zeros_like(k_bhjd)
    by_value, by_query = torch.zeros_like(v_bhjd), []
    for first in range(0, q_bhid.shape[2], QUERIES_PER_MATMUL):
        rows = slice(first, first + QUERIES_PER_MATMUL)
        q, grad, out = (to_compute_dtype(x[:, :, rows]) for x in (q_bhid, grad_bhid, whole.out_bhid))
        lse = whole.lse_bhi[:, :, rows, None]
        weight = torch.exp(_logits(q_bhid, k_bhjd, first, tile_mask) - lse.where(lse > -torch.inf, 0))
        by_value += weight.mT @ grad
        by_logit = weight * (grad @ v_bhjd.mT - (grad * out).sum(-1, keepdim=True))
        by_query.append(by_logit @ k_bhjd * scale)
        by_key += by_logit.mT @ q * scale
    group = (k_bgjd.shape[1], -1)
    by_key, by_value = (x.unflatten(1, group).sum(2) for x in (by_key, by_value))  # type: ignore[no-untyped-call]
    return Gradients(torch.cat(by_query, 2).to(q_bhid.dtype), by_key.to(k_bgjd.dtype), by_value.to(v_bgjd.dtype))


def _logits(q_bhid: Tensor, k_bhjd: Tensor, first: int, tile_mask: TileMask) -> Tensor:
    """The logits of one block of queries."""
    q = to_compute_dtype(q_bhid[:, :, first : first + QUERIES_PER_MATMUL])
    logit = q @ k_bhjd.mT / math.sqrt(q.shape[-1])
    if tile_mask.mask_ij is not None:
        logit = logit + tile_mask.mask_ij[..., first : first + QUERIES_PER_MATMUL, :]
    rows, i = q_bhid.shape[2], torch.arange(first, first + q.shape[2], device=q.device)[:, None]
    j = torch.arange(k_bhjd.shape[2], device=q.device)
    if tile_mask.triangle:
        logit = logit.masked_fill(j > i, -torch.inf)
    if tile_mask.window is not None:
        last = i + len(j) - rows
        logit = logit.masked_fill((j > last) | (j <= last - tile_mask.window), -torch.inf)
    return logit


def _per_query_head(x_bgjd: Tensor, q_bhid: Tensor) -> Tensor:
    return to_compute_dtype(x_bgjd).repeat_interleave(q_bhid.shape[1] // x_bgjd.shape[1], 1)
