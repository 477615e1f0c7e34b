"""One more token in every row of a batch over a long cache, as a share of the memory bandwidth.

Bandwidth is that of a copy from device to device in the same rounds, bytes read and bytes written. A step has to read
all visible keys and values once; *static* is torch's flash attention over a cache of that size, without our code.
32 query heads of 128 over 8 key heads, bfloat16.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

import ropewalk as rw
from ropewalk.attention import CacheState, LayerCache

from gpu.attention import facts_of
from gpu.case import Case, Place, Row, goal
from gpu.timing import compared

BANDWIDTH = 0.8  # goal: the share of the copy's bandwidth
CALLS = 8  # steps between two events
PIECE = 4096  # tokens of a chunk while the cache is filled
METHODS = ("rope", "rerope:window=2048", "self_extend:window=2048,group=8", "alibi", "streaming:window=2048")


class Fill(NamedTuple):
    """How many tokens are cached in how many rows."""

    cached: int
    rows: int


def cases(place: Place) -> list[Case]:
    """Caches of some gigabytes each, so that no cache of the chip holds them."""
    fills = place.either((Fill(32_768, 16), Fill(131_072, 4)), (Fill(24, 2),))
    return [
        Case(f"{fill.cached:,} cached, {fill.rows} rows", 12, functools.partial(measured, fill, place))
        for fill in fills
    ]


@torch.no_grad()
def measured(fill: Fill, place: Place, left: float) -> list[Row]:
    """Every method, one cache after the other: together they would not fit."""
    rows: list[Row] = []
    for text in place.either(METHODS, ("rope", "rerope:window=5")):
        rows += of_method(text, fill, place, left / len(METHODS) / 2)
    return rows


def of_method(text: str, fill: Fill, place: Place, seconds: float) -> list[Row]:
    """Steps of one method beside the copy and torch's kernel."""
    facts = facts_of(place)
    cache, visible = filled(text, fill, facts, place)
    new = vectors(1, fill, facts, place)
    source = torch.randn(
        place.either(2**30, 2**10), device=place.device, dtype=torch.bfloat16 if not place.dry else None
    )
    target = torch.empty_like(source)
    keys, values = (x.expand(-1, -1, -1, -1) for x in vectors(visible, fill, facts, place)[1:])
    query = new[0].view(fill.rows, facts.groups, -1, facts.head_dim)
    runs: dict[str, Callable[[], object]] = {
        "copy": lambda: target.copy_(source),
        "static": lambda: scaled_dot_product_attention(query, keys, values),
        text: lambda: step(cache, new),
    }
    figures = compared(runs, "copy", place, seconds=seconds, calls=place.either(CALLS, 1))
    moved = {"copy": 2 * source.nbytes, "static": keys.nbytes + values.nbytes, text: keys.nbytes + values.nbytes}
    bandwidth = moved["copy"] / figures["copy"]["milliseconds"] if figures["copy"]["milliseconds"] else 1.0
    rows = []
    for name, row in figures.items():
        if "milliseconds" in row:
            row["of bandwidth"] = round(moved[name] / max(row["milliseconds"], 1e-6) / bandwidth, 3)
            row["GB/s"] = round(moved[name] / max(row["milliseconds"], 1e-6) / 1e6)
        needed = goal("of bandwidth", BANDWIDTH, higher=True) if name in METHODS[:2] else {}
        rows.append({"method": name if name == text else f"{name} beside {text}", **row, **needed})
    return rows


def step(cache: LayerCache, new: list[Tensor]) -> Tensor:
    """Read a token and forget it, so that every step is the same one."""
    out = cache.read(*new)
    cache.forget(1)
    return out


def filled(text: str, fill: Fill, facts: rw.Facts, place: Place) -> tuple[LayerCache, int]:
    """A cache that has read the tokens, and how many keys its next token sees, the token itself included."""
    extension = rw.parse(text)
    weights = extension.weights(facts, torch.Generator().manual_seed(0))
    cache = LayerCache(CacheState(extension, facts, spare=1, weights=weights))
    while cache.count < fill.cached:
        cache.read(*vectors(min(place.either(PIECE, 8), fill.cached - cache.count), fill, facts, place))
    i = torch.tensor([fill.cached])
    bounds = (
        [span.bounds(i) for span in extension.reach_or_causal.spans()]
        if extension.reach
        else [(i - fill.cached, i + 1)]
    )
    return cache, sum(int(stop - start.clamp(min=0)) for start, stop in bounds)


def vectors(count: int, fill: Fill, facts: rw.Facts, place: Place) -> list[Tensor]:
    """The next tokens: queries, keys, values."""
    dtype = place.either(torch.bfloat16, torch.float32)
    sizes = [(fill.rows, heads, count, facts.head_dim) for heads in (facts.heads, facts.groups, facts.groups)]
    return [torch.randn(size, device=place.device, dtype=dtype) for size in sizes]
