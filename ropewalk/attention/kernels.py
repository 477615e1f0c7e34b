"""The fused kernels that torch ships, with their log-sum-exp: the only file that knows their private names.

torch promises nothing about these entry points, so each is tried on a small case at its first use on a device and in a
type: the answer, the natural logarithm, grouped heads, the mask, the backward pass. Where it does not hold, a matmul in
pieces takes its place.

Legend: b batch, h query head, g key head, i query, j key, d head dimension.
"""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from ropewalk.attention.precision import widened

FORWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
BLOCK = 256  # queries per matmul where no kernel can be had


class Part(NamedTuple):
    """A partial answer: the normalised output and the logarithm of what it was divided by."""

    out_bhid: Tensor
    lse_bhi: Tensor


class Gradients(NamedTuple):
    """Of a part's queries, keys and values."""

    q_bhid: Tensor
    k_bgjd: Tensor
    v_bgjd: Tensor


def forward(q_bhid: Tensor, k_bgjd: Tensor, v_bgjd: Tensor, *, triangle: bool, mask_ij: Tensor | None = None) -> Part:
    """Attention of each query to all keys, to those up to its own place (triangle), or as an additive mask says."""
    if fused(q_bhid.device.type, q_bhid.dtype):
        q_bhid, k_bgjd, v_bgjd = (_dense(x) for x in (q_bhid, k_bgjd, v_bgjd))
        return Part(*FORWARD(q_bhid, k_bgjd, v_bgjd, 0.0, triangle, attn_mask=mask_ij))
    return _matmul_forward(q_bhid, k_bgjd, v_bgjd, triangle, mask_ij)


def backward(
    grad_bhid: Tensor,
    q_bhid: Tensor,
    k_bgjd: Tensor,
    v_bgjd: Tensor,
    whole: Part,
    *,
    triangle: bool,
    mask_ij: Tensor | None = None,
) -> Gradients:
    """The part's gradients, given the answer of the *whole*: the softmax of one part divides by the sum over all."""
    if fused(q_bhid.device.type, q_bhid.dtype):
        grad_bhid, q_bhid, k_bgjd, v_bgjd = (_dense(x) for x in (grad_bhid, q_bhid, k_bgjd, v_bgjd))
        return Gradients(*BACKWARD(grad_bhid, q_bhid, k_bgjd, v_bgjd, *whole, 0.0, triangle, attn_mask=mask_ij))
    return _matmul_backward(grad_bhid, q_bhid, k_bgjd, v_bgjd, whole, triangle, mask_ij)


@cache
def fused(device: str, dtype: torch.dtype) -> bool:
    """Whether the kernel exists for this device and type and does what it is taken to do."""
    if device != "cpu":
        return False
    try:
        # Asked once for all: whatever surrounds the first call must not colour the answer.
        with torch.autocast("cpu", enabled=False), torch.device("cpu"), torch.no_grad():
            return _keeps_its_word(dtype)
    except (RuntimeError, AttributeError, TypeError):
        return False


def _dense(x: Tensor) -> Tensor:
    """The private kernels take it for granted that a vector's numbers are neighbours."""
    return x if x.stride(-1) == 1 else x.contiguous()


def _keeps_its_word(dtype: torch.dtype) -> bool:
    """Forward and backward against a matmul: two query heads a key head, a triangle, a mask in either precision."""
    rng = torch.Generator().manual_seed(0)
    q, grad = torch.randn(2, 2, 4, 5, 8, generator=rng).to(dtype)
    k, v = torch.randn(2, 2, 2, 5, 8, generator=rng).to(dtype)
    mask = torch.zeros(5, 5, dtype=dtype).masked_fill(torch.ones(5, 5).triu(2).bool(), -torch.inf)
    close = 1e-5 if dtype in (torch.float32, torch.float64) else 0.1
    for triangle, mask_ij in ((True, None), (False, None), (False, mask), (False, widened(mask))):
        ours, theirs = _matmul_forward(q, k, v, triangle, mask_ij), FORWARD(q, k, v, 0.0, triangle, attn_mask=mask_ij)
        slopes = _matmul_backward(grad, q, k, v, ours, triangle, mask_ij)
        answers = BACKWARD(grad, q, k, v, *theirs, 0.0, triangle, attn_mask=mask_ij)
        pairs = zip((*ours, *slopes), (*theirs, *answers), strict=True)
        if any((one.double() - other.double()).abs().max() > close for one, other in pairs):
            return False
    return True


def _matmul_forward(q_bhid: Tensor, k_bgjd: Tensor, v_bgjd: Tensor, triangle: bool, mask_ij: Tensor | None) -> Part:
    k_bhjd, v_bhjd = (_per_query_head(x, q_bhid) for x in (k_bgjd, v_bgjd))
    parts = []
    for first in range(0, q_bhid.shape[2], BLOCK):
        logit = _logits(q_bhid, k_bhjd, first, triangle, mask_ij)
        lse = torch.logsumexp(logit, -1)
        weight = torch.exp(logit - lse[..., None].where(lse[..., None] > -torch.inf, 0))
        parts.append(Part((weight @ v_bhjd).to(q_bhid.dtype), lse))
    return Part(*(torch.cat(each, 2) for each in zip(*parts, strict=True)))


def _matmul_backward(
    grad_bhid: Tensor,
    q_bhid: Tensor,
    k_bgjd: Tensor,
    v_bgjd: Tensor,
    whole: Part,
    triangle: bool,
    mask_ij: Tensor | None,
) -> Gradients:
    k_bhjd, v_bhjd = (_per_query_head(x, q_bhid) for x in (k_bgjd, v_bgjd))
    scale, by_key = 1 / math.sqrt(q_bhid.shape[-1]), torch.zeros_like(k_bhjd)
    by_value, by_query = torch.zeros_like(v_bhjd), []
    for first in range(0, q_bhid.shape[2], BLOCK):
        rows = slice(first, first + BLOCK)
        q, grad, out = (widened(x[:, :, rows]) for x in (q_bhid, grad_bhid, whole.out_bhid))
        lse = whole.lse_bhi[:, :, rows, None]
        weight = torch.exp(_logits(q_bhid, k_bhjd, first, triangle, mask_ij) - lse.where(lse > -torch.inf, 0))
        by_value += weight.mT @ grad
        by_logit = weight * (grad @ v_bhjd.mT - (grad * out).sum(-1, keepdim=True))
        by_query.append(by_logit @ k_bhjd * scale)
        by_key += by_logit.mT @ q * scale
    group = (k_bgjd.shape[1], -1)
    by_key, by_value = (x.unflatten(1, group).sum(2) for x in (by_key, by_value))  # type: ignore[no-untyped-call]
    return Gradients(torch.cat(by_query, 2).to(q_bhid.dtype), by_key.to(k_bgjd.dtype), by_value.to(v_bgjd.dtype))


def _logits(q_bhid: Tensor, k_bhjd: Tensor, first: int, triangle: bool, mask_ij: Tensor | None) -> Tensor:
    """The logits of one block of queries."""
    q = widened(q_bhid[:, :, first : first + BLOCK])
    logit = q @ k_bhjd.mT / math.sqrt(q.shape[-1])
    if mask_ij is not None:
        logit = logit + mask_ij[..., first : first + BLOCK, :]
    if triangle:
        i = torch.arange(first, first + q.shape[2], device=q.device)[:, None]
        logit = logit.masked_fill(torch.arange(k_bhjd.shape[2], device=q.device) > i, -torch.inf)
    return logit


def _per_query_head(x_bgjd: Tensor, q_bhid: Tensor) -> Tensor:
    return widened(x_bgjd).repeat_interleave(q_bhid.shape[1] // x_bgjd.shape[1], 1)
