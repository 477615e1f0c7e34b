"""The fused kernels that torch ships, by device: the only file that knows their private names.

Each is brought to one form: [batch, heads, tokens, dim] in and out, the natural logarithm of the sum, minus infinity
where a row sees nothing. What torch 2.13 does beneath, from its sources:

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
    """What torch has for one kind of device: forward, backward, and what they can be asked for."""

    forward: Callable[[Tensor, Tensor, Tensor, TileMask], PartialAttention]
    backward: Callable[[Tensor, Tensor, Tensor, Tensor, PartialAttention, TileMask], Gradients]
    masks: bool
    windows: bool
    largest_head: float = math.inf


def cpu_forward(q_bhid: Tensor, k_bgjd: Tensor, v_bgjd: Tensor, sight: TileMask) -> PartialAttention:
    """A piece of attention on the CPU."""
    q_bhid, k_bgjd, v_bgjd = (_dense(x) for x in (q_bhid, k_bgjd, v_bgjd))
    return PartialAttention(*CPU_FORWARD(q_bhid, k_bgjd, v_bgjd, 0.0, sight.triangle, attn_mask=sight.mask_ij))


def cpu_backward(
    grad_bhid: Tensor, q_bhid: Tensor, k_bgjd: Tensor, v_bgjd: Tensor, whole: PartialAttention, sight: TileMask
) -> Gradients:
    """Its gradients, given the answer of the whole."""
    grad_bhid, q_bhid, k_bgjd, v_bgjd = (_dense(x) for x in (grad_bhid, q_bhid, k_bgjd, v_bgjd))
    found = CPU_BACKWARD(grad_bhid, q_bhid, k_bgjd, v_bgjd, *whole, 0.0, sight.triangle, attn_mask=sight.mask_ij)
    return Gradients(*found)


def cuda_forward(q_bhid: Tensor, k_bgjd: Tensor, v_bgjd: Tensor, sight: TileMask) -> PartialAttention:
    """A piece of attention on a GPU."""
    size, rows, keys = q_bhid.shape[-1], q_bhid.shape[2], k_bgjd.shape[2]
    q_bihd, k_bjgd, v_bjgd = (_by_token(x) for x in (q_bhid, k_bgjd, v_bgjd))
    out_bihd, lse_bhi, *_ = CUDA_FORWARD(
        *(q_bihd, k_bjgd, v_bjgd, None, None, rows, keys, 0.0, sight.triangle, False), **_scale_and_window(size, sight)
    )
    return PartialAttention(_by_head(out_bihd, size), lse_bhi.masked_fill(lse_bhi == torch.inf, -torch.inf))


def cuda_backward(
    grad_bhid: Tensor, q_bhid: Tensor, k_bgjd: Tensor, v_bgjd: Tensor, whole: PartialAttention, sight: TileMask
) -> Gradients:
    """Its gradients, given the answer of the whole."""
    size, rows, keys = q_bhid.shape[-1], q_bhid.shape[2], k_bgjd.shape[2]
    given = [_by_token(x) for x in (grad_bhid, q_bhid, k_bgjd, v_bgjd, whole.out_bhid)]
    seeds = (torch.zeros(2, dtype=torch.uint64, device=q_bhid.device), q_bhid.new_zeros(0))  # of a dropout of nothing
    lse_bhi = whole.lse_bhi.contiguous()
    with _same_order_every_time():
        found = CUDA_BACKWARD(
            *(*given, lse_bhi, None, None, rows, keys, 0.0, sight.triangle, *seeds), **_scale_and_window(size, sight)
        )
    return Gradients(*(_by_head(x, size) for x in found))


BY_DEVICE = {
    "cpu": EntryPoint(cpu_forward, cpu_backward, masks=True, windows=False),
    "cuda": EntryPoint(cuda_forward, cuda_backward, masks=False, windows=True, largest_head=256),
}


def _dense(x: Tensor) -> Tensor:
    """The private kernels take it for granted that a vector's numbers are neighbours."""
    return x if x.stride(-1) == 1 else x.contiguous()


def _by_token(x_bhnd: Tensor) -> Tensor:
    """[batch, tokens, heads, dim] with sizes, steps and addresses as the cuda kernel reads them, unchecked by it."""
    x_bnhd = x_bhnd.transpose(1, 2)
    missing = -x_bnhd.shape[-1] % EIGHT
    if missing:
        return pad(x_bnhd, (0, missing))
    steps = [step for step, size in zip(x_bnhd.stride()[:-1], x_bnhd.shape[:-1], strict=True) if size > 1]
    aligned = x_bnhd.data_ptr() % (EIGHT * x_bnhd.element_size()) == 0 and all(step % EIGHT == 0 for step in steps)
    return x_bnhd if aligned and x_bnhd.stride(-1) == 1 else x_bnhd.clone(memory_format=torch.contiguous_format)


def _by_head(x_bnhd: Tensor, size: int) -> Tensor:
    return x_bnhd[..., :size].transpose(1, 2)


def _scale_and_window(size: int, sight: TileMask) -> dict[str, float | int]:
    """The scale of the size before padding. Row t of r ends at key t + keys - r, and sees `left` keys before it."""
    left, right = (-1, -1) if sight.window is None else (sight.window - 1, 0)
    return {"scale": 1 / math.sqrt(size), "window_size_left": left, "window_size_right": right}


@contextmanager
def _same_order_every_time() -> Iterator[None]:
    """The cuda kernel sums gradients in whatever order they come, unless torch as a whole is to be deterministic."""
    with IN_ORDER:
        before = torch.get_deterministic_debug_mode()
        torch.set_deterministic_debug_mode("error")
        try:
            yield
        finally:
            torch.set_deterministic_debug_mode(before)
