"""torch's fused attention kernels by device, each checked before it is used; a matmul replaces what fails.

The only file that uses torch's private names. torch promises nothing about them, so each kernel is tested on small
cases at its first use on a device and in a type: the output, the natural logarithm, grouped heads, masks, the backward
pass. All have one form here: [batch, heads, tokens, dim] in and out, the natural logarithm of the sum, minus infinity
where a row sees nothing. What torch 2.13 does, from its sources:

    cpu   a triangle counts from the first key; any additive mask; gradients in any type
    cuda  flash attention 2: half precision, [batch, tokens, heads, dim], sizes in eights, triangle and windows count
          from the last row and the last key, plus infinity where a row sees nothing; no mask

Legend: b batch, h query head, g key head, n token, i query, j key, d head dimension.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from ropewalk.attention.rotation.rotate import compute_dtype
from ropewalk.attention.torch_kernels import softmax
from ropewalk.attention.torch_kernels.softmax import (
    Gradients as Gradients,
    PartialAttention as PartialAttention,
    TileMask,
)

CPU_FORWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
CPU_BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
CUDA_FORWARD = torch.ops.aten._flash_attention_forward
CUDA_BACKWARD = torch.ops.aten._flash_attention_backward
EIGHT = 8  # numbers of half precision that the cuda kernel reads at once
ONE, FEW, MANY, WINDOW = 1, 5, 150, 3  # rows of the small cases: of a step, within one tile of a kernel, over several

# Attention by the kernel of a device.


def forward(
    q_bhid: Tensor,
    k_bgjd: Tensor,
    v_bgjd: Tensor,
    *,
    triangle: bool,
    mask_ij: Tensor | None = None,
    window: int | None = None,
) -> PartialAttention:
    """Attention of each query to all keys, to those up to its own index (triangle), to the last `window` keys up to its
    own (as in TileMask), or by an additive mask."""
    tile_mask = TileMask(triangle, window, mask_ij)
    entry = _entry(q_bhid, tile_mask)
    if entry is None:
        return softmax.forward(q_bhid, k_bgjd, v_bgjd, tile_mask)
    return entry.forward(q_bhid, k_bgjd, v_bgjd, tile_mask)


def backward(
    grad_bhid: Tensor,
    q_bhid: Tensor,
    k_bgjd: Tensor,
    v_bgjd: Tensor,
    whole: PartialAttention,
    *,
    triangle: bool,
    mask_ij: Tensor | None = None,
    window: int | None = None,
) -> Gradients:
    """The part's gradients, from the output of the *whole*: the softmax of one part divides by the sum over all."""
    tile_mask = TileMask(triangle, window, mask_ij)
    entry = _entry(q_bhid, tile_mask)
    if entry is None:
        return softmax.backward(grad_bhid, q_bhid, k_bgjd, v_bgjd, whole, tile_mask)
    return entry.backward(grad_bhid, q_bhid, k_bgjd, v_bgjd, whole, tile_mask)


def why_no_kernel(device: torch.device, dtype: torch.dtype, head_dim: int) -> str | None:
    """Why there is no fused kernel for such vectors, or nothing."""
    if not has_fused_kernel(str(device), dtype):
        return f"torch has no such kernel for {dtype} on {device.type}"
    largest = BY_DEVICE[device.type].largest_head
    return f"torch's kernel for {device.type} takes heads of at most {largest}" if head_dim > largest else None


def why_matmul(device: torch.device, dtype: torch.dtype, head_dim: int) -> str:
    """A remark for `explain` where a matmul replaces the fused kernel."""
    missing = why_no_kernel(device, dtype, head_dim)
    return f"; {missing}: a matmul replaces it" if missing else ""


def has_window_kernel(like: Tensor) -> bool:
    """Whether a band of such vectors is one call of a kernel; otherwise it is cut into blocks with a mask."""
    return _entry(like, TileMask(window=1)) is not None


@cache
def has_fused_kernel(device: str, dtype: torch.dtype) -> bool:
    """Whether the kernel exists for this device and type and computes what we expect."""
    return _passes(device, dtype, (FEW, MANY))


@cache
def has_step_kernel(device: str, dtype: torch.dtype) -> bool:
    """Whether it also does for a single query, which a kernel may compute in another way."""
    return has_fused_kernel(device, dtype) and _passes(device, dtype, (ONE,))


def _passes(device: str, dtype: torch.dtype, rows: Sequence[int]) -> bool:
    kind = torch.device(device).type
    entry = BY_DEVICE.get(kind)
    if entry is None:
        return False
    try:
        # Tested once: the context of the first call must not change the result.
        with torch.autocast(kind, enabled=False), torch.device(device), torch.no_grad():
            return _is_right(entry, dtype, rows)
    except torch.OutOfMemoryError:  # no fault of the kernel
        raise
    except (RuntimeError, AttributeError, TypeError, AssertionError):
        return False


def _entry(like: Tensor, tile_mask: TileMask) -> EntryPoint | None:
    """The device's kernel if it supports such vectors and this mask."""
    if not has_fused_kernel(str(like.device), like.dtype):
        return None
    entry = BY_DEVICE[like.device.type]
    supported = (entry.masks or tile_mask.mask_ij is None) and (entry.windows or tile_mask.window is None)
    return entry if supported and like.shape[-1] <= entry.largest_head else None


def _is_right(entry: EntryPoint, dtype: torch.dtype, sizes: Sequence[int]) -> bool:
    """Forward and backward against a matmul, with two query heads a key head."""
    close = 1e-5 if dtype in (torch.float32, torch.float64) else 0.1
    rng = torch.Generator().manual_seed(0)
    for rows, keys, tile_mask in _small_cases(entry, dtype, sizes):
        q, grad, other = torch.randn(3, 2, 4, rows, 8, generator=rng, device="cpu").to(dtype)
        k, v = torch.randn(2, 2, 2, keys, 8, generator=rng, device="cpu").to(dtype)
        q, grad, other, k, v = (x.to(torch.get_default_device()) for x in (q, grad, other, k, v))
        ours, theirs = softmax.forward(q, k, v, tile_mask), entry.forward(q, k, v, tile_mask)
        # As if other keys had changed the output and doubled the sum: the backward pass must use the whole's.
        whole = PartialAttention(other, ours.lse_bhi + math.log(2))
        slopes = softmax.backward(grad, q, k, v, whole, tile_mask)
        answers = entry.backward(grad, q, k, v, whole, tile_mask)
        pairs = zip((*ours, *slopes), (*theirs, *answers), strict=True)
        if not all((one.double() - other.double()).abs().max() <= close for one, other in pairs):
            return False
    return True


def _small_cases(entry: EntryPoint, dtype: torch.dtype, sizes: Sequence[int]) -> Iterator[tuple[int, int, TileMask]]:
    """Small cases of all that the kernel must support: rows, keys and masks."""
    for rows in sizes:
        yield rows, rows, TileMask(triangle=True)
        yield rows, rows + 2, TileMask()
        if entry.windows:
            yield rows, rows + WINDOW - 1, TileMask(window=WINDOW)
            yield rows, rows, TileMask(window=WINDOW)
        if entry.masks:
            hidden = torch.ones(rows, rows).triu(2).bool()
            for precision in (dtype, compute_dtype(dtype)):
                mask = torch.zeros(rows, rows, dtype=precision).masked_fill(hidden, -torch.inf)
                yield rows, rows, TileMask(mask_ij=mask)


# The kernels.


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
    q_bihd, k_bjgd, v_bjgd = (_to_kernel_layout(x) for x in (q_bhid, k_bgjd, v_bgjd))
    out_bihd, lse_bhi, *_ = CUDA_FORWARD(
        *(q_bihd, k_bjgd, v_bjgd, None, None, rows, keys, 0.0, tile_mask.triangle, False),
        **_scale_and_window(size, tile_mask),
    )
    return PartialAttention(_from_kernel_layout(out_bihd, size), lse_bhi.masked_fill(lse_bhi == torch.inf, -torch.inf))


def cuda_backward(
    grad_bhid: Tensor, q_bhid: Tensor, k_bgjd: Tensor, v_bgjd: Tensor, whole: PartialAttention, tile_mask: TileMask
) -> Gradients:
    """Its gradients, from the output of the whole."""
    size, rows, keys = q_bhid.shape[-1], q_bhid.shape[2], k_bgjd.shape[2]
    inputs = [_to_kernel_layout(x) for x in (grad_bhid, q_bhid, k_bgjd, v_bgjd, whole.out_bhid)]
    seeds = (torch.zeros(2, dtype=torch.uint64, device=q_bhid.device), q_bhid.new_zeros(0))  # of a dropout that is off
    lse_bhi = whole.lse_bhi.contiguous()
    gradients = CUDA_BACKWARD(
        *(*inputs, lse_bhi, None, None, rows, keys, 0.0, tile_mask.triangle, *seeds),
        **_scale_and_window(size, tile_mask),
    )
    return Gradients(*(_from_kernel_layout(x, size) for x in gradients))


BY_DEVICE = {
    "cpu": EntryPoint(cpu_forward, cpu_backward, masks=True, windows=False),
    "cuda": EntryPoint(cuda_forward, cuda_backward, masks=False, windows=True, largest_head=256),
}


def _dense(x: Tensor) -> Tensor:
    """The private kernels assume that a vector's numbers are adjacent in memory."""
    return x if x.stride(-1) == 1 else x.contiguous()


def _to_kernel_layout(x_bhnd: Tensor) -> Tensor:
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


def _from_kernel_layout(x_bnhd: Tensor, size: int) -> Tensor:
    return x_bnhd[..., :size].transpose(1, 2)


def _scale_and_window(size: int, tile_mask: TileMask) -> dict[str, float | int]:
    """The scale for the size before padding. Row t of r ends at key t + keys - r, and sees `left` keys before it."""
    left, right = (-1, -1) if tile_mask.window is None else (tile_mask.window - 1, 0)
    return {"scale": 1 / math.sqrt(size), "window_size_left": left, "window_size_right": right}
