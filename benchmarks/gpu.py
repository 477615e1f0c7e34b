"""Two rotations (ReRoPE) on a GPU against torch's flash attention plus rotating queries and keys.

    python benchmarks/gpu.py

B 1, H 32, D 128, bfloat16, W 512; 8k and 32k; forward, and forward + backward; by CUDA events. *attend* is the whole
call, which computes its plan every time; *triton* and *flash* are the backends alone, with the plan computed before.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

import ropewalk as rw
from ropewalk.attention import attend, explain
from ropewalk.attention.backends.flash import flash
from ropewalk.attention.backends.triton.launch import plan_for, triton_attention
from ropewalk.attention.layout.segments import SpanKeys, segments_of
from ropewalk.attention.rotation.rotate import Rotation, rotate, rotated_copies, rotation_at
from ropewalk.attention.torch_kernels.fused import has_fused_kernel

from rounds import append, by_events, ratios, rounds

FACTS = rw.Facts(trained_len=4096, head_dim=128, heads=32)
EXTENSION = rw.parse("rerope:window=512")
TARGETS = {8192: 1.15, 32_768: 1.08}
Attention = Callable[[Tensor, Tensor, Tensor], Tensor]


def plain(rotation: Rotation) -> Attention:
    """The baseline; its angles are computed before."""

    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            return scaled_dot_product_attention(
                rotate(q, rotation, False), rotate(k, rotation, False), v, is_causal=True
            )

    return run


def candidates(q: Tensor, v: Tensor) -> dict[str, Attention]:
    """The baseline, the whole call, and every backend that carries the problem."""
    at = torch.arange(q.shape[2])
    segments = segments_of(EXTENSION, FACTS, at, [at] * len(EXTENSION.spans.spans()))
    one = torch.ones(1, len(at), dtype=torch.float64)
    rotation = rotation_at(at, rw.Extension().theta.table(FACTS, 1), at)
    runs: dict[str, Attention] = {
        "plain": plain(Rotation(*(part.to(q.device, torch.float32) for part in rotation))),
        "attend": lambda q, k, v: attend(q, k, v, EXTENSION, FACTS),
    }
    plan = plan_for(segments, q, v, False)
    runs["triton"] = lambda q, k, v: triton_attention(q, k, v, plan, one, None)
    if has_fused_kernel(q.device.type, q.dtype):

        def tiles(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return flash(rotated_copies(q, [SpanKeys(k, v, at)] * len(EXTENSION.spans.spans()), segments, False))

        runs["flash"] = tiles
    return runs


def compare(length: int, *, backward: bool) -> list[dict[str, Any]]:
    """One length: every candidate in every round."""
    inputs = [torch.randn(1, 32, length, 128, device="cuda", dtype=torch.bfloat16) for _ in range(4)]
    q, k, v, slope = (x.requires_grad_(backward and n < 3) for n, x in enumerate(inputs))
    print(explain(q, k, v, EXTENSION, FACTS))

    def timed(run: Attention) -> Callable[[], object]:
        return (lambda: run(q, k, v).backward(slope)) if backward else (lambda: run(q, k, v))

    times = rounds({name: timed(run) for name, run in candidates(q, v).items()}, 10, by_events)
    case = {"case": "forward + backward" if backward else "forward", "length": length, "to_reach": TARGETS[length]}
    return [{"method": name, **case, **figures} for name, figures in ratios(times, "plain").items()]


def main() -> None:
    """Measure, print and store."""
    if not torch.cuda.is_available():
        sys.exit("benchmarks/gpu.py must run where torch sees a CUDA GPU, and this one sees none")
    torch.manual_seed(0)
    rows = [row for length in TARGETS for backward in (False, True) for row in compare(length, backward=backward)]
    for row in rows:
        print("  ".join(f"{name} {value}" for name, value in row.items()), flush=True)
    print(f"stored in {append('gpu', rows, torch.cuda.get_device_name())}")


if __name__ == "__main__":
    main()
