"""The backward pass where the mask's line needs a gradient too: weights and slopes in blocks, summed along diagonals.

    weight = exp(logit - lse)      slope = weight (grad v - grad out)      line[x] receives the slopes of diagonal x

A block's rows are padded by as many zeros as it has rows. A view whose rows are one number shorter shifts each row by
one against the row before, so that diagonals become columns. Five matmuls for each block, about the cost of the fused
backward pass, and no matrix of all pairs. Where rows are short, several heads and batch rows share a matmul.

Legend: b batch, h query head, g key head, p batch row and head, i query, j key, d head dimension, x index in the line.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from ropewalk.attention.rotation.precision import LOG2_E, to_compute_dtype
from ropewalk.attention.torch_kernels.fused import Gradients, PartialAttention

KEYS_PER_BLOCK = 512  # of a block, with 256 rows: the fastest of 256, 512, 768 and 1024
LOGITS_PER_BLOCK = 256 * KEYS_PER_BLOCK  # of the blocks that are computed together


class DiagonalGradients(NamedTuple):
    """The gradients of queries, keys and values, and of the line that the mask is read from."""

    vectors: Gradients
    line_hx: Tensor


def backward(
    grad_bhid: Tensor, q_bhid: Tensor, k_bgjd: Tensor, v_bgjd: Tensor, whole: PartialAttention, mask_hij: Tensor
) -> DiagonalGradients:
    """The gradients of rows against keys whose mask is line[i + j]; sums in at least float32."""
    vectors = [to_compute_dtype(x) for x in (grad_bhid, q_bhid, k_bgjd, v_bgjd)]
    common_pi = (vectors[0] * to_compute_dtype(whole.out_bhid)).sum(-1).flatten(0, 1)
    lse_pi = whole.lse_bhi.flatten(0, 1)
    grad_pid, q_pid, k_gjd, v_gjd = (x.flatten(0, 1) for x in vectors)
    totals = Gradients(*(torch.zeros(x.shape, dtype=x.dtype, device=x.device) for x in vectors[1:]))
    by_q, by_k, by_v = (x.flatten(0, 1) for x in totals)
    rows, size = q_pid.shape[1:]
    line_hx = q_pid.new_zeros(q_bhid.shape[1], rows + k_gjd.shape[1] - 1, dtype=torch.float64)
    for p, h, g, keys in _blocks_of_one_matmul(q_bhid, k_bgjd):
        q, k, v, grad = q_pid[p], k_gjd[g, keys], v_gjd[g, keys], grad_pid[p]
        weight = _weight(q, k, mask_hij[h, :, keys], lse_pi[p])
        slope, by_diagonal = _slope(weight, grad, v, common_pi[p])
        by_q[p].baddbmm_(slope, k, alpha=1 / math.sqrt(size))
        by_k[:, keys].index_add_(0, g, slope.mT @ q, alpha=1 / math.sqrt(size))
        by_v[:, keys].index_add_(0, g, weight.mT @ grad)
        line_hx[:, keys.start : keys.start + by_diagonal.shape[1]].index_add_(0, h, by_diagonal.double())
    return DiagonalGradients(totals, line_hx)


def _blocks_of_one_matmul(q_bhid: Tensor, k_bgjd: Tensor) -> Iterator[tuple[slice, Tensor, Tensor, slice]]:
    """Blocks that share a matmul: batch rows with heads as a slice, the head and the key head of each, and keys."""
    batch, heads, rows, _ = q_bhid.shape
    groups, count = k_bgjd.shape[1:3]
    p = torch.arange(batch * heads, device=q_bhid.device)
    h = p % heads
    g = p // heads * groups + h // (heads // groups)
    at_once = max(1, LOGITS_PER_BLOCK // (rows * min(count, KEYS_PER_BLOCK)))
    for first, key in itertools.product(range(0, len(p), at_once), range(0, count, KEYS_PER_BLOCK)):
        some = slice(first, first + at_once)
        yield some, h[some], g[some], slice(key, key + KEYS_PER_BLOCK)


def _weight(q_pid: Tensor, k_pjd: Tensor, mask_pij: Tensor, lse_pi: Tensor) -> Tensor:
    """The weights of these keys in the softmax over all keys."""
    scale = LOG2_E / math.sqrt(q_pid.shape[-1])
    logit_pij = torch.baddbmm(mask_pij, q_pid, k_pjd.mT, beta=LOG2_E, alpha=scale)
    return logit_pij.sub_(LOG2_E * lse_pi[..., None]).exp2_()


def _slope(weight_pij: Tensor, grad_pid: Tensor, v_pjd: Tensor, common_pi: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient of the logits, and its sums over i + j = x."""
    pairs, rows, keys = weight_pij.shape
    padded = weight_pij.new_zeros(pairs, rows, keys + rows)
    slope_pij = padded[:, :, :keys]
    slope_pij.copy_(grad_pid @ v_pjd.mT).sub_(common_pi[..., None]).mul_(weight_pij)
    width = keys + rows - 1
    return slope_pij, padded.as_strided((pairs, rows, width), (rows * (keys + rows), width, 1)).sum(1)
