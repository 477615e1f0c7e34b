"""The backward pass where the mask's line needs a gradient too: weights and slopes in blocks, summed along diagonals.

    weight = exp(logit - lse)      slope = weight (grad v - grad out)      line[x] receives the slopes of diagonal x

A block's rows are padded by as many zeros as it has rows. A view whose rows are one number shorter shifts each row by
one against the row before, so that diagonals become columns. Five matmuls for each block, about the cost of the fused
backward pass, and no matrix of all pairs.

Legend: b batch, h query head, g key head, i query, j key, d head dimension, x index in the line.
"""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import torch
from torch import Tensor

from ropewalk.attention.rotation.precision import LOG2_E, to_compute_dtype
from ropewalk.attention.torch_kernels.fused import Gradients, PartialAttention

KEYS = 512  # of a block, with 256 rows: the fastest of 256, 512, 768 and 1024


class DiagonalGradients(NamedTuple):
    """The gradients of queries, keys and values, and of the line that the mask is read from."""

    vectors: Gradients
    line_hx: Tensor


def backward(
    grad_bhid: Tensor, q_bhid: Tensor, k_bgjd: Tensor, v_bgjd: Tensor, whole: PartialAttention, mask_hij: Tensor
) -> DiagonalGradients:
    """The gradients of rows against keys whose mask is line[i + j]; sums in at least float32."""
    grad_bhid, q_bhid, k_bgjd, v_bgjd = (to_compute_dtype(x) for x in (grad_bhid, q_bhid, k_bgjd, v_bgjd))
    total = Gradients(*(torch.zeros_like(x) for x in (q_bhid, k_bgjd, v_bgjd)))
    batch, heads, rows, size = q_bhid.shape
    line_hx = q_bhid.new_zeros(heads, rows + k_bgjd.shape[2] - 1, dtype=torch.float64)
    common_bhi = (grad_bhid * to_compute_dtype(whole.out_bhid)).sum(-1)
    for b, h, first in itertools.product(range(batch), range(heads), range(0, k_bgjd.shape[2], KEYS)):
        g, keys = h // (heads // k_bgjd.shape[1]), slice(first, first + KEYS)
        q, k, v, grad = q_bhid[b, h], k_bgjd[b, g, keys], v_bgjd[b, g, keys], grad_bhid[b, h]
        weight = _weight(q, k, mask_hij[h, :, keys], whole.lse_bhi[b, h])
        slope, by_diagonal = _slope(weight, grad, v, common_bhi[b, h])
        total.q_bhid[b, h].addmm_(slope, k, alpha=1 / math.sqrt(size))
        total.k_bgjd[b, g, keys].addmm_(slope.T, q, alpha=1 / math.sqrt(size))
        total.v_bgjd[b, g, keys].addmm_(weight.T, grad)
        line_hx[h, first : first + len(by_diagonal)] += by_diagonal
    return DiagonalGradients(total, line_hx)


def _weight(q_id: Tensor, k_jd: Tensor, mask_ij: Tensor, lse_i: Tensor) -> Tensor:
    """The weights of these keys in the softmax over all keys."""
    scale = LOG2_E / math.sqrt(q_id.shape[-1])
    logit_ij = torch.addmm(mask_ij, q_id, k_jd.T, beta=LOG2_E, alpha=scale)
    return logit_ij.sub_(LOG2_E * lse_i[:, None]).exp2_()


def _slope(weight_ij: Tensor, grad_id: Tensor, v_jd: Tensor, common_i: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient of the logits, and its sums over i + j = x."""
    rows, keys = weight_ij.shape
    padded = weight_ij.new_zeros(rows, keys + rows)
    slope_ij = torch.mm(grad_id, v_jd.T, out=padded[:, :keys])
    slope_ij.sub_(common_i[:, None]).mul_(weight_ij)
    width = keys + rows - 1
    return slope_ij, padded.as_strided((rows, width), (width, 1)).sum(0)
