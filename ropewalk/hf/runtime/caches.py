"""Caches as the reach needs them, behind transformers' own interface."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import CacheLayerMixin, DummyLayer, DynamicLayer, DynamicSlidingWindowLayer

from ropewalk.attention import LayerCache, Session
from ropewalk.attention.cache.kv_buffers import RingBuffer
from ropewalk.errors import Conflict, InvalidValue
from ropewalk.hf.probe.cache_contents import layer_bytes

# How many tokens may be taken back, by an assistant that proposed them in vain.
SPARE: ContextVar[int] = ContextVar("spare", default=0)
PLAIN = (DynamicLayer, DynamicSlidingWindowLayer)  # what generate makes when nothing else is asked for


class ExtendedCacheLayer(CacheLayerMixin):  # type: ignore[no-untyped-call]
    """One layer's memory. What comes in is handed through to the attention function, which gives it to the memory."""

    is_sliding = False
    supports_early_init = False

    def __init__(self, session: Session) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.memory = LayerCache(session)
        self.expected = False  # whether a pass of the extended model is under way

    @property
    def is_croppable(self) -> bool:  # type: ignore[override]
        """Whether tokens can be taken back, as assisted decoding does."""
        return all(not isinstance(buffer, RingBuffer) or buffer.spare > 0 for buffer in self.memory.session.buffers)

    def activate_past_recording(self) -> None:
        """Asked for before tokens come that may be taken back: too late where what they would need is gone."""
        if self.memory.count and not self.is_croppable:
            rule = "begun in an assisted call, since this reach forgets"
            raise InvalidValue("past_key_values", rule, "one from another call", remedy="begin with a new cache")

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """The memory makes its own room."""

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """The new keys and values, as they came; nobody but the model that the memory was made for asks for them."""
        if not self.expected:
            remedy = "begin with a new cache"
            raise Conflict(
                "past_key_values", "used under the extension that filled it", "by the bare model", remedy=remedy
            )
        return key_states, value_states

    def get_seq_length(self) -> int:
        """How many tokens were read."""
        return self.memory.count

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """As if everything were kept: masks are the memory's business."""
        return self.memory.count + query_length, 0

    def get_max_length(self) -> int:
        """None."""
        return -1

    def reset(self) -> None:
        """Begin anew."""
        self.memory = LayerCache(self.memory.session)

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """The rows in another order."""
        self.memory.select(beam_idx.tolist())

    def batch_select_indices(self, indices: Tensor) -> None:
        """Some of the rows."""
        rows = torch.arange(self.memory.batch)[indices.cpu()]
        self.memory.select(rows.tolist())

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Each row so many times."""
        self.memory.select([row for row in range(self.memory.batch) for _ in range(repeats)])

    def crop(self, tokens_to_remove: int) -> None:
        """Take back the last tokens; transformers counts them below 0."""
        if self.memory.count:  # not where the first layers alone have run, as an early exit does
            self.memory.forget(-tokens_to_remove)


def is_fresh(cache: Any, slots: Sequence[int]) -> bool:
    """Whether a cache is a plain one, or ours, and holds nothing (yet, or any more): then ours takes its place anew.

    Only the slots of attention are looked at; what other layers keep is theirs, and needs a cache made for the model.
    """
    if type(cache) is not DynamicCache or cache.offloading:
        return False
    if not cache.layers:
        return sorted(slots) == list(range(len(slots)))
    return max(slots) < len(cache.layers) and all(_is_empty(cache.layers[slot]) for slot in slots)


def _is_empty(layer: Any) -> bool:
    """A layer that shares another's keys has nothing of its own, and is empty as long as that is."""
    return type(layer) is DummyLayer or (type(layer) in (*PLAIN, ExtendedCacheLayer) and layer.get_seq_length() == 0)


def held_bytes(cache: DynamicCache) -> int:
    """Of the keys and values that a cache holds, with the room that it keeps for more."""
    return sum(
        each.memory.nbytes if isinstance(each, ExtendedCacheLayer) else layer_bytes(each) for each in cache.layers
    )


def adopt(cache: DynamicCache, sessions: Mapping[int, Session]) -> None:
    """Fill the slots of attention in a fresh cache with memories, one for each layer's session."""
    layers: list[Any] = cache.layers or [None] * len(sessions)
    for slot, session in sessions.items():
        layers[slot] = ExtendedCacheLayer(session)
    cache.layers = layers
    cache.layer_class_to_replicate = None
