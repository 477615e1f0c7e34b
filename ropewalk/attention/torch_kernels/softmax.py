"""Softmax and matmul in blocks of rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ropewalk.attention.rotation.rotate import compute_dtype, to_compute_dtype

# What the model itself adds to the softmax: a cap on its logits, and sinks that take weight but have no value.
#
#     cap(x) = softcap tanh(x / softcap)
#
#     weight(i,j) = exp(cap(logit(i,j)))  /  ( sum over j of exp(cap(logit(i,j)))  +  exp(sink_h) )
#
# A sink is one more part of the softmax: its output is zero and its log-sum-exp is sink_h. Where a kernel returns its
# log-sum-exp, the sink is merged exactly afterwards. The kernel's backward pass, called with the output and log-sum-exp
# of the whole, is right without change.
#
# Legend: b batch, h query head, i query, j key, d head dimension.


def cap_logits(logit: Tensor, softcap: float | None) -> Tensor:
    """The logits under the model's cap, before masking."""
    return logit if softcap is None else softcap * torch.tanh(logit / softcap)


def softmax(logit: Tensor, sink: Tensor | None) -> Tensor:
    """The weights of keys, in the last dimension; `sink` has one number there."""
    if sink is None:
        return torch.softmax(logit, -1)
    with_sink = torch.cat([logit, sink.to(logit.dtype).expand(*logit.shape[:-1], 1)], -1)
    return torch.softmax(with_sink, -1)[..., :-1]


def merge_parts(parts: Sequence[PartialAttention], sink_h: Tensor | None) -> Tensor:
    """The parts of one softmax, weighted by their sums of exponentials; zeros in a row that sees nothing."""
    if len(parts) == 1 and sink_h is None:
        return parts[0].out_bhid
    lse_pbhi = torch.stack([part.lse_bhi for part in parts])
    seeing_bhi = (lse_pbhi > -torch.inf).any(0)
    lse_pbhi = lse_pbhi.where(seeing_bhi, 0)
    if sink_h is not None:  # a part whose values are zero
        lse_pbhi = torch.cat([lse_pbhi, sink_h[:, None].to(lse_pbhi.device, lse_pbhi.dtype).expand_as(lse_pbhi[:1])])
    share_pbhi = torch.softmax(lse_pbhi, 0)
    total = torch.zeros_like(parts[0].out_bhid, dtype=compute_dtype(parts[0].out_bhid.dtype))
    for share_bhi, part in zip(share_pbhi[: len(parts)], parts, strict=True):
        total = total + share_bhi[..., None] * part.out_bhid
    return total.to(parts[0].out_bhid.dtype)


def add_sinks(part: PartialAttention, sink_h: Tensor) -> PartialAttention:
    """The whole softmax, from the part of the keys."""
    total_bhi = torch.logaddexp(part.lse_bhi, sink_h[:, None].to(part.lse_bhi.dtype))
    share_bhi = torch.exp(part.lse_bhi - total_bhi)
    return PartialAttention((part.out_bhid * share_bhi[..., None]).to(part.out_bhid.dtype), total_bhi)


def sink_gradient(grad_bhid: Tensor, whole: PartialAttention, sink_h: Tensor) -> Tensor:
    """The gradient of the sinks: that of a logit whose value is zero."""
    weight_bhi = torch.exp(sink_h[:, None].to(whole.lse_bhi.dtype) - whole.lse_bhi)
    common_bhi = (to_compute_dtype(grad_bhid) * to_compute_dtype(whole.out_bhid)).sum(-1)
    return -(weight_bhi * common_bhi).sum((0, 2)).to(sink_h.dtype)


# What a fused kernel computes, by matmul in blocks: used where there is no kernel, and to check the kernels.
#
# Legend: b batch, h query head, g key head, i query, j key, d head dimension.


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
