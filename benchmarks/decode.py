"""One token at a time: streaming in a small model, ReRoPE and grouped heads over a long cache, precision far out.

    python benchmarks/decode.py [--quick]

One thread. The small model has d 512, 8 layers, 8 heads, 2,048 words, random weights; window 1,024 with 4 sinks.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear, rms_norm, scaled_dot_product_attention, silu

import ropewalk as rw
from ropewalk.attention import CacheState, LayerCache
from ropewalk.attention.rotation.rotate import Rotation, expand_rotation, rotate, rotate_few, rotation_at
from ropewalk.attention.torch_kernels.fused import forward

from rounds import append, ratios, rounds

WIDTH, LAYERS, HEADS, WORDS, HIDDEN = 512, 8, 8, 2048, 1408
WINDOW, SINKS = 1024, 4
FACTS = rw.Facts(trained_len=4096, head_dim=64, heads=HEADS)
ROPE = rw.Extension().frequencies_or_rope.table(FACTS, 1)
DTYPES = (torch.float32, torch.bfloat16)

# (layer, q, k, v) -> the output
Attention = Callable[[int, Tensor, Tensor, Tensor], Tensor]


class Model:
    """The rest of a small language model, for any attention."""

    def __init__(self, dtype: torch.dtype) -> None:
        shapes = {"qkv": (3 * WIDTH, WIDTH), "out": (WIDTH, WIDTH), "up": (2 * HIDDEN, WIDTH), "down": (WIDTH, HIDDEN)}
        draw = lambda shape: (torch.randn(shape) * 0.02).to(dtype)  # noqa: E731
        self.layers = [{name: draw(shape) for name, shape in shapes.items()} for _ in range(LAYERS)]
        self.words = draw((WORDS, WIDTH))

    def __call__(self, tokens: Tensor, attention: Attention) -> Tensor:
        """The logits after the last token."""
        x = self.words[tokens]
        for index, layer in enumerate(self.layers):
            qkv = linear(rms_norm(x, (WIDTH,)), layer["qkv"]).view(1, -1, 3, HEADS, 64).permute(2, 0, 3, 1, 4)
            x = x + linear(attention(index, *qkv).transpose(1, 2).reshape(1, -1, WIDTH), layer["out"])
            gate, up = linear(rms_norm(x, (WIDTH,)), layer["up"]).chunk(2, -1)
            x = x + linear(silu(gate) * up, layer["down"])
        return linear(rms_norm(x[:, -1:], (WIDTH,)), self.words)


def expanded_rotation(positions: Tensor, dtype: torch.dtype) -> Rotation:
    """cos and sin at these positions, as wide as a head."""
    wide = torch.float32 if dtype == torch.bfloat16 else dtype
    return Rotation(*(part.to(wide) for part in expand_rotation(rotation_at(positions, ROPE, positions), False)))


class Floor:
    """A static cache: rotate the query and the key, store, attend."""

    def __init__(self, size: int, dtype: torch.dtype, heads: int = HEADS, groups: int = HEADS, dim: int = 64) -> None:
        self.cache = [[torch.randn(1, groups, size, dim).to(dtype) for _ in range(2)] for _ in range(LAYERS)]
        self.rotation = expanded_rotation(torch.tensor([size - 1]), dtype)

    def __call__(self, index: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """One step."""
        keys, values = self.cache[index]
        keys[:, :, -1:], values[:, :, -1:] = rotate_few(k, self.rotation, False), v
        folded = rotate_few(q, self.rotation, False).view(1, k.shape[1], -1, q.shape[-1])
        return forward(folded, keys, values, triangle=False).out_bhid.view(q.shape)


class Official:
    """StreamingLLM's algorithm: cut the cache, append the new key, rotate all keys by their index in it, uncompiled."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.size, self.dtype = SINKS + WINDOW, dtype
        self.cache = [[torch.randn(1, HEADS, self.size, 64).to(dtype) for _ in range(2)] for _ in range(LAYERS)]
        cos, sin = rotation_at(torch.arange(self.size), ROPE, torch.arange(self.size))
        self.rotation = Rotation(*(torch.cat([part, part], -1).to(dtype) for part in (cos, sin)))

    def __call__(self, index: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """One step."""
        self.cache[index] = [
            torch.cat([old[:, :, :SINKS], old[:, :, SINKS + 1 :], new], 2)
            for old, new in zip(self.cache[index], (k, v), strict=True)
        ]
        keys, values = self.cache[index]
        q = authors_rotation(q, Rotation(*(part[-1:] for part in self.rotation)))
        weight = torch.softmax(q @ authors_rotation(keys, self.rotation).mT / math.sqrt(64), -1, dtype=torch.float32)
        return weight.to(self.dtype) @ values


def authors_rotation(x: Tensor, rotation: Rotation) -> Tensor:
    """As their code and transformers rotate: halves are concatenated, products rounded to the model's precision."""
    return x * rotation.cos + torch.cat([-x[..., 32:], x[..., :32]], -1) * rotation.sin


def ours(dtype: torch.dtype, count: int) -> Attention:
    """Layer caches under StreamingLLM that have read `count` tokens."""
    state = rw.parse(f"streaming:window={WINDOW},n_sink={SINKS}")
    caches = [LayerCache(shared) for shared in [CacheState(state, FACTS)] for _ in range(LAYERS)]
    for cache in caches:
        for part in torch.randn(3, 1, HEADS, count, 64).to(dtype).split(8192, 3):
            cache.read(*part)
    return lambda index, q, k, v: caches[index].read(q, k, v)


def recomputing(_: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The whole window again for every token."""
    at = torch.arange(q.shape[2])
    rotation = rotation_at(at, ROPE, at)
    return scaled_dot_product_attention(rotate(q, rotation, False), rotate(k, rotation, False), v, is_causal=True)


def streaming(dtype: torch.dtype, count: int) -> list[dict[str, Any]]:
    """S6: one more token of the whole model, by four algorithms."""
    model, tokens = Model(dtype), torch.randint(0, WORDS, (1, WINDOW))
    official, floor, caches = Official(dtype), Floor(SINKS + WINDOW, dtype), ours(dtype, 2048)

    def ten(attention: Attention) -> Callable[[], object]:
        return lambda: [model(tokens[:, :1], attention) for _ in range(10)]

    times = rounds({"floor": ten(floor), "ours": ten(caches), "official": ten(official)}, count)
    again = rounds({"recomputing": lambda: model(tokens, recomputing)}, 2)["recomputing"]
    to_ours = ratios(times, "ours")
    case = {"case": "streaming, whole model", "dtype": str(dtype)[6:]}
    to_floor = ratios(times, "floor")["ours"]
    return [
        {**case, "against": "static cache", **to_floor, "to_reach": 1.05},
        {**case, "against": "StreamingLLM's algorithm", "times faster": to_ours["official"]["median"], "to_reach": 2.2},
        {
            **case,
            "against": "recomputing",
            "times faster": round(10 * min(again) / min(times["ours"]), 1),
            "to_reach": 25,
        },
    ]


def far_and_near(count: int) -> list[dict[str, Any]]:
    """The same step after a thousand tokens beyond the window, and after a million."""
    new = torch.randn(3, 1, HEADS, 1, 64)
    after = {"10^3": ours_alone(10**3 + WINDOW), "10^6": ours_alone(10**6)}
    steps = {name: lambda cache=cache: [cache.read(*new) for _ in range(50)] for name, cache in after.items()}
    return [
        {
            "case": "a step after 10^6 tokens against 10^3",
            **ratios(rounds(steps, count), "10^3")["10^6"],
            "to_reach": 1.0,
        }
    ]


def ours_alone(count: int) -> LayerCache:
    """One layer under StreamingLLM after `count` tokens."""
    cache = LayerCache(CacheState(rw.parse(f"streaming:window={WINDOW},n_sink={SINKS}"), FACTS))
    chunk = torch.randn(3, 1, HEADS, 16_384, 64)
    while cache.count < count:
        cache.read(*chunk[:, :, :, : count - cache.count])
    return cache


def long_cache(dtype: torch.dtype, count: int) -> list[dict[str, Any]]:
    """S7: ReRoPE over 8,192 cached keys against plain attention over the same number."""
    new = torch.randn(3, 1, HEADS, 1, 64).to(dtype)
    state = CacheState(rw.parse("rerope:window=512"), FACTS)
    caches, floor = [LayerCache(state) for _ in range(LAYERS)], Floor(8192, dtype)
    for cache in caches:
        cache.read(*torch.randn(3, 1, HEADS, 8192, 64).to(dtype))
    steps: dict[str, Callable[[], object]] = {
        "plain": lambda: [floor(index, *new) for _ in range(3) for index in range(LAYERS)],
        "rerope": lambda: [cache.read(*new) for _ in range(3) for cache in caches],
    }
    figures = ratios(rounds(steps, count), "plain")["rerope"]
    return [{"case": "rerope step, 8,192 cached", "dtype": str(dtype)[6:], **figures, "to_reach": 1.05}]


def grouped(cached: int, dtype: torch.dtype, count: int) -> dict[str, Any]:
    """S7: 32 query heads over 8 key heads, folded against `enable_gqa`."""
    q, k, v = (torch.randn(1, heads, n, 128).to(dtype) for heads, n in ((32, 1), (8, cached), (8, cached)))
    steps: dict[str, Callable[[], object]] = {
        "folded": lambda: [forward(q.view(1, 8, 4, 128), k, v, triangle=False) for _ in range(5)],
        "enable_gqa": lambda: [scaled_dot_product_attention(q, k, v, enable_gqa=True) for _ in range(5)],
    }
    faster = ratios(rounds(steps, count), "folded")["enable_gqa"]["median"]
    case = {"case": "grouped heads folded, 32 over 8", "cached": cached, "dtype": str(dtype)[6:]}
    return {**case, "times faster": faster, "to_reach": 1.7}


def far_out() -> list[dict[str, Any]]:
    """S8: a stream at position 2^30 against the definition in float64, relative to the largest output."""
    rows = []
    for begin in (2000, 2**17, 2**22, 2**30):
        q, k, v = torch.randn(3, 1, HEADS, 200, 64, generator=torch.Generator().manual_seed(begin))
        extension = rw.parse("window:window=128")
        cache = LayerCache(CacheState(extension, FACTS, begins=(begin,)))
        got = torch.cat([cache.read(*(x[:, :, t : t + 1] for x in (q, k, v))) for t in range(200)], 2)
        positions = torch.arange(begin, begin + 200)[None]
        expected = rw.reference_attention(q.double(), k.double(), v.double(), extension, FACTS, rw.Tokens(positions))
        error = float((got - expected).abs().max() / expected.abs().max())
        rows.append(
            {"case": "streamed attention, float32", "position": begin, "error": f"{error:.1e}", "to_reach": 1e-5}
        )
    return rows


def main() -> None:
    """Measure, print and store."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    quick = "--quick" in sys.argv
    count = 2 if quick else 8
    rows: list[dict[str, Any]] = []
    with torch.no_grad():
        rows += far_out()
        for dtype in DTYPES[: 1 if quick else 2]:
            rows += streaming(dtype, count)
            rows += long_cache(dtype, count)
            rows += [grouped(cached, dtype, count) for cached in (1024, 4096, 16_384)]
        if not quick:
            rows += far_and_near(count)
    for row in rows:
        print("  ".join(f"{name} {value}" for name, value in row.items() if value is not None), flush=True)
    if not quick:
        print(f"stored in {append('decode', rows)}")


if __name__ == "__main__":
    main()
