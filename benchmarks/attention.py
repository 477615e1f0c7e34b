"""Attention under each reach and bias against plain causal attention, and the loss head against the naive one.

    python benchmarks/attention.py [--quick]

B 1, H 8, D 64, W 512, 4 sinks, one thread. *Plain* is torch's causal scaled_dot_product_attention plus rotating queries
and keys.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

import ropewalk as rw
from ropewalk.attention import CacheState, attend, cache_for, explain, nll
from ropewalk.attention.backends.bias_pruning import NEGLIGIBLE
from ropewalk.attention.rotation.rotate import rotate, rotation_at

from rounds import append, ratios, rounds

FACTS = rw.Facts(trained_len=4096, head_dim=64, heads=8)
REACHES = {
    "rerope": "rerope:window=512",
    "self_extend": "self_extend:window=512,group=8",
    "dual_chunk": "dual_chunk:chunk=1536,local=512",
    "streaming": "streaming:window=512",
    "window": "window:window=512",
    "dynamic_yarn": "dynamic_yarn",
    "alibi": "alibi",
}
BIASES = {"t5": "biases.t5", "kerple_log": "biases.kerple_log", "sandwich": "biases.sandwich"}
# case, method, length -> the target in float32 and bfloat16
TARGETS = {
    **{("forward", name, 4096): (1.15, 1.35) for name in ("rerope", "self_extend")},
    **{("forward", name, 8192): (1.10, 1.20) for name in ("rerope", "self_extend")},
    **{("forward", name, 16384): (1.05, 1.10) for name in ("rerope", "self_extend")},
    ("forward", "dual_chunk", 16384): (1.10, 1.18),
    ("forward", "streaming", 4096): (0.38, 0.54),
    ("forward", "streaming", 8192): (0.21, 0.31),
    ("forward", "streaming", 16384): (0.11, 0.16),
    ("forward", "alibi", 4096): (1.4, 1.4),
    ("forward", "alibi", 8192): (1.4, 1.4),
    ("forward", "alibi", 16384): (0.42, 0.42),
    **{("forward", name, 8192): (1.4, 1.4) for name in BIASES},
    **{("forward", "alibi, nothing left out", length): (1.4, 1.4) for length in (4096, 8192, 16384)},
    ("forward + backward", "rerope", 8192): (1.2, 1.3),
    ("forward + backward", "window", 8192): (0.30, 0.38),
    **{("forward + backward", f"{name}, learning", 8192): (2.0, 2.0) for name in ("t5", "kerple_log")},
}
DTYPES = (torch.float32, torch.bfloat16)


def plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The baseline: one table of angles, two rotations, torch's causal attention."""
    at = torch.arange(q.shape[2])
    rotation = rotation_at(at, rw.Extension().frequencies_or_rope.table(FACTS, 1), at)
    return scaled_dot_product_attention(rotate(q, rotation, False), rotate(k, rotation, False), v, is_causal=True)


def candidate(name: str) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Attention under one extension; the name may add that its learned numbers need gradients, or no pruning."""
    method, _, how = name.partition(", ")
    extension = rw.parse({**REACHES, **BIASES}[method])
    weights = extension.weights(FACTS, torch.Generator().manual_seed(0))
    for group in weights.values():
        for value in group.values():
            value.requires_grad_(how == "learning")
    run = lambda q, k, v: attend(q, k, v, extension, FACTS, weights=weights)  # noqa: E731
    if how != "nothing left out":
        return run
    return lambda q, k, v: patch.dict(NEGLIGIBLE, {q.dtype: -9999})(run)(q, k, v)


def compare(length: int, dtype: torch.dtype, names: list[str], *, backward: bool, count: int) -> list[dict[str, Any]]:
    """One length and type: every named reach against plain attention."""
    inputs = [torch.randn(1, 8, length, 64).to(dtype).requires_grad_(backward) for _ in range(3)]
    slope = torch.randn(1, 8, length, 64).to(dtype)

    def run(function: Callable[..., Tensor]) -> Callable[[], object]:
        return (lambda: function(*inputs).backward(slope)) if backward else (lambda: function(*inputs))

    times = rounds({"plain": run(plain), **{name: run(candidate(name)) for name in names}}, count)
    case = "forward + backward" if backward else "forward"
    rows = []
    for name, figures in ratios(times, "plain").items():
        target = TARGETS.get((case, name, length))
        rows.append({"case": case, "method": name, "length": length, "dtype": str(dtype)[6:], **figures})
        rows[-1]["to_reach"] = target[DTYPES.index(dtype)] if target else None
    return rows


def by_head(length: int, dtype: torch.dtype, count: int) -> list[dict[str, Any]]:
    """Every other key head over all keys, the others over sinks and a window: against two layers of four heads.

    Whole, and token by token after that many tokens, through a cache.
    """
    near = rw.parse("sinks:window=256,n_sink=64,renumber=false")
    mixed = replace(near, heads={head: rw.parse("causal") for head in range(0, 8, 2)})
    half = replace(FACTS, heads=4)
    apart = [(near, half, slice(1, None, 2)), (rw.parse("causal"), half, slice(0, None, 2))]
    together = [(mixed, FACTS, slice(None))]
    inputs = [torch.randn(1, 8, length, 64).to(dtype) for _ in range(3)]
    tokens = [[torch.randn(1, 8, 1, 64).to(dtype) for _ in range(3)] for _ in range(64)]
    rows = []
    for case in ("forward", "token by token"):

        def prepare(parts: list[Any], case: str = case) -> Callable[[], object]:
            split = [[x[:, heads].contiguous() for x in inputs] for _, _, heads in parts]
            if case == "forward":
                return lambda: [attend(*qkv, one, facts) for qkv, (one, facts, _) in zip(split, parts, strict=True)]
            caches = [cache_for(CacheState(one, facts)) for one, facts, _ in parts]
            for cache, qkv in zip(caches, split, strict=True):
                cache.read(*qkv)
            steps = [[[x[:, heads].contiguous() for x in qkv] for qkv in tokens] for _, _, heads in parts]
            return lambda: [cache.read(*qkv) for cache, of in zip(caches, steps, strict=True) for qkv in of]

        figures = ratios(rounds({"apart": prepare(apart), "together": prepare(together)}, count), "apart")["together"]
        row = {"case": f"{case}, half of the heads by heads=", "length": length, "dtype": str(dtype)[6:], **figures}
        rows.append({**row, "to_reach": 1.05})
    return rows


def loss_head(dtype: torch.dtype, count: int) -> list[dict[str, Any]]:
    """8,192 tokens over 32,000 words."""
    hidden, head = torch.randn(8192, 512).to(dtype), (torch.randn(32_000, 512) / 20).to(dtype)
    targets = torch.randint(0, 32_000, (8192,))
    naive = lambda: cross_entropy((hidden @ head.mT).float(), targets, reduction="none")  # noqa: E731
    figures = ratios(rounds({"ours": lambda: nll(hidden, head, targets), "naive": naive}, count), "ours")
    faster = {"times faster": figures["naive"]["best"], "to_reach": 1.7 if dtype == torch.float32 else 3.0}
    return [{"case": "loss head 8,192 x 32,000", "dtype": str(dtype)[6:], **figures["naive"], **faster}]


def scoring(tokens: int) -> dict[str, Any]:
    """How much memory a new process needs to score tokens over 32,000 words, beyond inputs and output."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        grown = process.submit(grown_in_scoring, tokens).result()
    row = {"case": "loss head, memory", "length": tokens, "dtype": "bfloat16", "MiB": round(grown, 1)}
    return {**row, "all logits would be": tokens * 32_000 * 4 >> 20, "to_reach": 32}


def grown_in_scoring(tokens: int) -> float:
    """The peak of resident memory while `nll` runs, minus that before it and minus its output, in MiB."""
    torch.set_num_threads(1)
    hidden, head = (torch.randn(size, 256, dtype=torch.bfloat16) for size in (tokens, 32_000))
    targets = torch.randint(0, 32_000, (tokens,))
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from what is resident
    before = resident("VmRSS")
    with torch.no_grad():
        losses = nll(hidden, head, targets)
    return (resident("VmHWM") - before - losses.nbytes) / 2**20


def resident(field: str) -> int:
    """A field of this process's status, in bytes."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines[field].split()[0]) * 1024


def plans() -> list[dict[str, Any]]:
    """The time before the first multiplication, at 16,384 tokens."""
    inputs = [torch.empty(1, 8, 16_384, 64)] * 3
    rows = []
    for name, text in REACHES.items():
        extension = rw.parse(text)
        best = min(_seconds(lambda extension=extension: explain(*inputs, extension, FACTS)) for _ in range(5))
        rows.append({"case": "plan 16,384", "method": name, "milliseconds": round(best * 1e3, 1), "to_reach": 5})
    return rows


def _seconds(run: Callable[[], object]) -> float:
    before = time.perf_counter()
    run()
    return time.perf_counter() - before


def peak(length: int) -> dict[str, Any]:
    """How much memory the process needs for ReRoPE prefill, beyond inputs and one output."""
    q, k, v = (torch.randn(1, 8, length, 64) for _ in range(3))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    candidate("rerope")(q, k, v)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    return {
        "case": "peak memory, rerope",
        "length": length,
        "MiB": round(grown),
        "n x n would be": length**2 * 32 >> 20,
    }


def main() -> None:
    """Measure, print and store."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    quick = "--quick" in sys.argv
    count, lengths = (2, (2048,)) if quick else (4, (4096, 8192, 16_384))
    rows: list[dict[str, Any]] = []
    with torch.no_grad():
        rows += [peak(length) for length in ((2048,) if quick else (8192, 16_384, 32_768))]
        rows += [scoring(16_384 if quick else 131_072)]
        rows += plans()
        for dtype in DTYPES:
            rows += loss_head(dtype, count)
            rows += by_head(lengths[min(1, len(lengths) - 1)], dtype, count)
            for length in lengths:
                names = [*REACHES, "alibi, nothing left out", *(BIASES if length <= 8192 and not quick else ())]
                rows += compare(length, dtype, names, backward=False, count=count if length < 16_384 else 2)
    for dtype in DTYPES:
        length = lengths[0] if quick else 8192
        names = ["rerope", "window", "alibi", "t5, learning", "kerple_log, learning"]
        rows += compare(length, dtype, names, backward=True, count=2)
    for row in rows:
        print("  ".join(f"{name} {value}" for name, value in row.items() if value is not None), flush=True)
    if not quick:
        print(f"stored in {append('attention', rows)}")


if __name__ == "__main__":
    main()
