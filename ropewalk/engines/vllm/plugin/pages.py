"""What vLLM's block manager is told of a layer's pages: how wide they are, and which may be freed.

A page holds one lane of keys for every position that spans give them (ropewalk.attention.paged). Where the reach only
sees the last tokens, and perhaps the first ones, the pages between are freed: memory is constant at any length.

vLLM's prefix cache finds blocks from the left and drops those that a window has left behind. It cannot keep the first
ones beside the last, so requests under such a reach do not use each other's prefixes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vllm.utils.math_utils import cdiv
from vllm.utils.torch_utils import get_dtype_size
from vllm.v1.core.single_type_kv_cache_manager import SlidingWindowManager
from vllm.v1.kv_cache_interface import AttentionSpec, FullAttentionSpec, SlidingWindowSpec
from vllm.v1.kv_cache_spec_registry import KVCacheSpecRegistry

from ropewalk.attention.paged import PagedLayer


@dataclass(frozen=True, kw_only=True)
class FirstAndLastSpec(SlidingWindowSpec):
    """Pages of the first tokens of a request and of the last ones; the others are freed."""

    first_tokens: int = 0

    def max_admission_blocks_per_request(self, max_in_flight_tokens: int, max_model_len: int) -> int:
        """The most pages that a request holds."""
        last = super().max_admission_blocks_per_request(max_in_flight_tokens, max_model_len)
        return int(last + cdiv(self.first_tokens, self.block_size))


class FirstAndLastManager(SlidingWindowManager):
    """Frees the pages between the first tokens and the last ones."""

    kv_cache_spec: FirstAndLastSpec

    def remove_skipped_blocks(
        self, request_id: str, processed_computed_tokens: int, num_prompt_tokens: int | None = None
    ) -> None:
        """Free what no later token sees."""
        end = self.get_num_skipped_tokens(processed_computed_tokens) // self.block_size
        self._remove_blocks_in_range(request_id, cdiv(self.kv_cache_spec.first_tokens, self.block_size), end)

    @classmethod
    def find_longest_cache_hit(
        cls, block_hashes: Any, max_length: int, kv_cache_group_ids: list[int], *args: Any, **kwargs: Any
    ) -> tuple[tuple[list[Any], ...], int]:
        """Nothing is taken from other requests."""
        return tuple([] for _ in kv_cache_group_ids), 0


def page_spec(theirs: AttentionSpec, paged: PagedLayer) -> AttentionSpec:
    """vLLM's description of a layer's pages, as this layer needs them."""
    cell = paged.lanes * theirs.head_size * get_dtype_size(theirs.dtype)
    keep = paged.retention
    common = {
        "block_size": theirs.block_size,
        "num_kv_heads": theirs.num_kv_heads,
        "head_size": theirs.head_size,
        "head_size_v": theirs.head_size_v,
        "dtype": theirs.dtype,
        "state_content_bytes": cell,
    }
    if keep.last is None:
        return FullAttentionSpec(**common)
    return FirstAndLastSpec(**common, sliding_window=max(1, keep.last), first_tokens=keep.first)


def register_pages() -> None:
    """Tell vLLM who manages such pages; may be called again."""
    KVCacheSpecRegistry.register(FirstAndLastSpec, FirstAndLastManager, uniform_type_base_spec=FirstAndLastSpec)
