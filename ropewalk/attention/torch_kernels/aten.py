"""torch's fused attention kernels, by device: the only file that uses their private names.

All have one form here: [batch, heads, tokens, dim] in and out, the natural logarithm of the sum, minus infinity where a
row sees nothing. What torch 2.13 does, from its sources:

    cpu   a triangle counts from the first key; any additive mask; gradients in any type
    cuda  flash attention 2: half precision, [batch, tokens, heads, dim], sizes in eights, triangle and windows count
          from the last row and the last key, plus infinity where a row sees nothing; no mask

Legend: b batch, h query head, g key head, n token, i query, j key, d head dimension.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from ropewalk.attention.torch_kernels.matmul import Gradients, PartialAttention, TileMask

CPU_FORWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
CPU_BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
CUDA_FORWARD = torch.ops.aten._flash_attention_forward
CUDA_BACKWARD = torch.ops.aten._flash_attention_backward
EIGHT = 8  # numbers of half precision that the cuda kernel reads at once
IN_ORDER = Lock()


class EntryPoint(NamedTuple):
    """torch's kernels for one kind of device: forward, backward, and what they support."""

    forward: Callable[[Tensor, Tensor, Tensor, TileMask], PartialAttention]
    backward: Callable[[Tensor, Tensor, Tensor, Tensor, PartialAttention, TileMask], Gradients]
    masks: bool
    windows: bool
    largest_head: float = math.inf


def cpu_forward(q_bhid: Tensor, k_bgjd: Tensor, v_bgjd: Tensor, tile_mask: TileMask) -> PartialAttention:
    """A part of attention on the CPU."""
    q_bhid, k_bgjd, v_bgjd = (_dense(x) for x in (q_bhid, k_bgjd, v_bgjd))
    return PartialAttention(*CPU_FORWARD(q_bhid, k_bgjd, v_bgjd, 0.0, tile_mask.triangle, attn_mask=tile_mask.mask_ij))


def cpu_backward(
    grad_bhid: Tensor, q_bhid: Tensor, k_bgjd: Tensor, v_bgjd: Tensor, whole: PartialAttention, tile_mask: TileMask
) -> Gradients:
    """Its gradients, from the output of the whole."""
    grad_bhid, q_bhid, k_bgjd, v_bgjd = (_dense(x) for x in (grad_bhid, q_bhid, k_bgjd, v_bgjd))
    gradients = CPU_BACKWARD(
        grad_bhid, q_bhid, k_bgjd, v_bgjd, *whole, 0.0, tile_mask.triangle, attn_mask=tile_mask.mask_ij
    )
    return Gradients(*gradients)


def cuda_forward(q_bhid: Tensor, k_bgjd: Tensor, v_bgjd: Tensor, tile_mask: TileMask) -> PartialAttention:
    """A part of attention on a GPU."""
    size, rows, keys = q_bhid.shape[-1], q_bhid.shape[2], k_bgjd.shape[2]
    q_bihd, k_bjgd, v_bjgd = (_by_token(x) for x in (q_bhid, k_bgjd, v_bgjd))
    out_bihd, lse_bhi, *_ = CUDA_FORWARD(
        *(q_bihd, k_bjgd, v_bjgd, None, None, rows, keys, 0.0, tile_mask.triangle, False),
        **_scale_and_window(size, tile_mask),
    )
    return PartialAttention(_by_head(out_bihd, size), lse_bhi.masked_fill(lse_bhi == torch.inf, -torch.inf))


def cuda_backward(
    grad_bhid: Tensor, q_bhid: Tensor, k_bgjd: Tensor, v_bgjd: Tensor, whole: PartialAttention, tile_mask: TileMask
) -> Gradients:
    """Its gradients, from the output of the whole."""
    size, rows, keys = q_bhid.shape[-1], q_bhid.shape[2], k_bgjd.shape[2]
    inputs = [_by_token(x) for x in (grad_bhid, q_bhid, k_bgjd, v_bgjd, whole.out_bhid)]
    seeds = (torch.zeros(2, dtype=torch.uint64, device=q_bhid.device), q_bhid.new_zeros(0))  # of a dropout that is off
    lse_bhi = whole.lse_bhi.contiguous()
    with _same_order_every_time():
        gradients = CUDA_BACKWARD(
            *(*inputs, lse_bhi, None, None, rows, keys, 0.0, tile_mask.triangle, *seeds),
            **_scale_and_window(size, tile_mask),
        )
    return Gradients(*(_by_head(x, size) for x in gradients))


BY_DEVICE = {
    "cpu": EntryPoint(cpu_forward, cpu_backward, masks=True, windows=False),
    "cuda": EntryPoint(cuda_forward, cuda_backward, masks=False, windows=True, largest_head=256),
}


def _dense(x: Tensor) -> Tensor:
    """The private kernels assume that a vector's numbers are adjacent in memory."""
    return x if x.stride(-1) == 1 else x.contiguous()


def _by_token(x_bhnd: Tensor) -> Tensor:
    """[batch, tokens, heads, dim] with sizes, strides and addresses that the cuda kernel needs and does not check."""
    x_bnhd = x_bhnd.transpose(1, 2)
    missing = -x_bnhd.shape[-1] % EIGHT
    if missing:
        return pad(x_bnhd, (0, missing))
    strides = [stride for stride, size in zip(x_bnhd.stride()[:-1], x_bnhd.shape[:-1], strict=True) if size > 1]
    aligned = x_bnhd.data_ptr() % (EIGHT * x_bnhd.element_size()) == 0 and all(
        stride % EIGHT == 0 for stride in strides
    )
    return x_bnhd if aligned and x_bnhd.stride(-1) == 1 else x_bnhd.clone(memory_format=torch.contiguous_format)


def _by_head(x_bnhd: Tensor, size: int) -> Tensor:
    return x_bnhd[..., :size].transpose(1, 2)


def _scale_and_window(size: int, tile_mask: TileMask) -> dict[str, float | int]:
    """The scale for the size before padding. Row t of r ends at key t + keys - r, and sees `left` keys before it."""
    left, right = (-1, -1) if tile_mask.window is None else (tile_mask.window - 1, 0)
    return {"scale": 1 / math.sqrt(size), "window_size_left": left, "window_size_right": right}


@contextmanager
def _same_order_every_time() -> Iterator[None]:
    """The cuda kernel sums gradients in any order unless torch is set to be deterministic."""
    with IN_ORDER:
        before = torch.get_deterministic_debug_mode()
        torch.set_deterministic_debug_mode("error")
        try:
            yield
        finally:
            torch.set_deterministic_debug_mode(before)
