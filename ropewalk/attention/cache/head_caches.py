"""One layer's past tokens where its heads differ: a cache for each part, which keeps what the reach of its heads needs.

Legend: b batch, h query head, g key head, i query, j key, d head dimension.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ropewalk.attention.cache.buffers import CacheState
from ropewalk.attention.cache.layer_cache import LayerCache
from ropewalk.attention.problem import join_heads, take_heads
from ropewalk.extension.inputs import require_shapes


def cache_for(state: CacheState) -> LayerCache | HeadCaches:
    """The cache of one layer, empty: one for all heads, or one for each part of heads that differ.

    cache = cache_for(CacheState(extension.at_layer(layer, facts), facts))
    out = cache.read(q, k, v)
    """
    return HeadCaches(state) if state.parts else LayerCache(state)


class HeadCaches:
    """A `LayerCache` for each part of a layer whose heads differ; used as one."""

    def __init__(self, state: CacheState) -> None:
        self.state = state
        self._caches = [LayerCache(part) for _, part in state.parts]

    @property
    def count(self) -> int:
        """How many tokens were read."""
        return self._caches[0].count

    @property
    def batch(self) -> int:
        """The number of rows."""
        return self._caches[0].batch

    @property
    def nbytes(self) -> int:
        """The memory of all stored vectors, in bytes."""
        return sum(cache.nbytes for cache in self._caches)

    def select(self, rows: Sequence[int]) -> None:
        """Continue with these rows in this order; a row may appear more than once."""
        self.state = self.state.of_rows(rows)
        for cache in self._caches:
            cache.select(rows)

    def forget(self, tokens: int) -> None:
        """Remove the last tokens, as after a rejected draft; from all parts, or from none."""
        for cache in self._caches:
            cache.require_forgettable(tokens)
        for cache in self._caches:
            cache.forget(tokens)

    def read(self, q_bhid: Tensor, k_bgjd: Tensor, v_bgjd: Tensor, written_bn: Tensor | None = None) -> Tensor:
        """Store the next n tokens and return their outputs, [batch, heads, n, value size]; zeros for padded ones."""
        facts = self.state.terms.facts
        if self.count == 0 or (q_bhid.shape[1], k_bgjd.shape[1]) != (facts.heads, facts.groups):  # parts check the rest
            require_shapes(q_bhid, k_bgjd, v_bgjd, facts)
        parts = [part for part, _ in self.state.parts]
        outputs = [
            cache.read(
                take_heads(q_bhid, part.query_heads),
                take_heads(k_bgjd, part.key_heads),
                take_heads(v_bgjd, part.key_heads),
                written_bn,
            )
            for part, cache in zip(parts, self._caches, strict=True)
        ]
        return join_heads(parts, outputs)
