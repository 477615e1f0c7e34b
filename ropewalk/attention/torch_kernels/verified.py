"""Parts of attention by the fastest kernel of a device: torch's fused kernels, or a matmul instead.

torch promises nothing about the kernels' private entry points. So each is tested on small cases at its first use on a
device and in a type: the output, the natural logarithm, grouped heads, masks, the backward pass. Where it fails, a
matmul in blocks replaces it.

Legend: b batch, h query head, g key head, i query, j key, d head dimension.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache

import torch
from torch import Tensor

from ropewalk.attention.rotation.precision import compute_dtype
from ropewalk.attention.torch_kernels import matmul
from ropewalk.attention.torch_kernels.aten import BY_DEVICE, EntryPoint
from ropewalk.attention.torch_kernels.matmul import Gradients as Gradients
from ropewalk.attention.torch_kernels.matmul import PartialAttention as PartialAttention
from ropewalk.attention.torch_kernels.matmul import TileMask

FEW, MANY, WINDOW = 5, 150, 3  # rows of the small cases: within one tile of a kernel, and over several


def forward(
    q_bhid: Tensor,
    k_bgjd: Tensor,
    v_bgjd: Tensor,
    *,
    triangle: bool,
    mask_ij: Tensor | None = None,
    window: int | None = None,
) -> PartialAttention:
    """Attention of each query to all keys, to those up to its own index (triangle), to the `window` keys from its index
    on, or by an additive mask."""
    tile_mask = TileMask(triangle, window, mask_ij)
    entry = _entry(q_bhid, tile_mask)
    if entry is None:
        return matmul.forward(q_bhid, k_bgjd, v_bgjd, tile_mask)
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
        return matmul.backward(grad_bhid, q_bhid, k_bgjd, v_bgjd, whole, tile_mask)
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
    kind = torch.device(device).type
    entry = BY_DEVICE.get(kind)
    if entry is None:
        return False
    try:
        # Tested once: the context of the first call must not change the result.
        with torch.autocast(kind, enabled=False), torch.device(device), torch.no_grad():
            return _is_right(entry, dtype)
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


def _is_right(entry: EntryPoint, dtype: torch.dtype) -> bool:
    """Forward and backward against a matmul, with two query heads a key head."""
    close = 1e-5 if dtype in (torch.float32, torch.float64) else 0.1
    rng = torch.Generator().manual_seed(0)
    for rows, keys, tile_mask in _small_cases(entry, dtype):
        q, grad, other = torch.randn(3, 2, 4, rows, 8, generator=rng, device="cpu").to(dtype)
        k, v = torch.randn(2, 2, 2, keys, 8, generator=rng, device="cpu").to(dtype)
        q, grad, other, k, v = (x.to(torch.get_default_device()) for x in (q, grad, other, k, v))
        ours, theirs = matmul.forward(q, k, v, tile_mask), entry.forward(q, k, v, tile_mask)
        # As if other keys had changed the output and doubled the sum: the backward pass must use the whole's.
        whole = PartialAttention(other, ours.lse_bhi + math.log(2))
        slopes = matmul.backward(grad, q, k, v, whole, tile_mask)
        answers = entry.backward(grad, q, k, v, whole, tile_mask)
        pairs = zip((*ours, *slopes), (*theirs, *answers), strict=True)
        if not all((one.double() - other.double()).abs().max() <= close for one, other in pairs):
            return False
    return True


def _small_cases(entry: EntryPoint, dtype: torch.dtype) -> Iterator[tuple[int, int, TileMask]]:
    """Small cases of all that the kernel must support: rows, keys and masks."""
    for rows in (FEW, MANY):
        yield rows, rows, TileMask(triangle=True)
        yield rows, rows + 2, TileMask()
        if entry.windows:
            yield rows, rows + WINDOW - 1, TileMask(window=WINDOW)
        if entry.masks:
            hidden = torch.ones(rows, rows).triu(2).bool()
            for precision in (dtype, compute_dtype(dtype)):
                mask = torch.zeros(rows, rows, dtype=precision).masked_fill(hidden, -torch.inf)
                yield rows, rows, TileMask(mask_ij=mask)
