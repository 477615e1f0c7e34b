"""The caches of an extended model, which pass owns one, and which tokens a model writes."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import Cache, DynamicCache, cache_utils
from transformers.cache_utils import CacheLayerMixin, DynamicLayer, DynamicSlidingWindowLayer

from ropewalk.attention import CacheState, cache_for
from ropewalk.attention.cache.buffers import RingBuffer
from ropewalk.attention.scoped import scoped
from ropewalk.errors import Conflict, InvalidValue
from ropewalk.extension.extension import Extension
from ropewalk.hf.probe.probed_layer import layer_bytes
from ropewalk.hf.runtime.rounded_cache import RoundedCache
from ropewalk.methods.facts import Facts

# A cache belongs to the extension that filled it: under another, or under the base model, it is refused.
#
# Caches are referenced weakly; the mark of its owner is an attribute of the cache.


_MARK = "_ropewalk_owner"  # of a cache: who filled it
REMEDY = "begin with a new cache"
REMOVED = "past_key_values was filled under an extension, and cannot be used by the base model"


Basis = tuple[tuple[Facts, bool], ...]  # of each layer the facts, and whether its window is lifted


@dataclass(frozen=True)
class OwnerMark:
    """What decides the numbers of a cache, and whose mark it is. The mode says whether keys are rotated."""

    extension: Extension
    mode: str
    layers: Basis
    caches: weakref.WeakSet[Any] = field(default_factory=weakref.WeakSet, compare=False)

    def __deepcopy__(self, memo: dict[int, Any]) -> OwnerMark:
        """The copy of a cache belongs to whom the cache does."""
        for copied in memo.values():
            if isinstance(copied, Cache):
                self.caches.add(copied)
        return self

    def __reduce__(self) -> Any:
        return OwnerMark, (self.extension, self.mode, self.layers)


class NeverCopied:
    """An object of an extended model that must not be copied: it is tied to that model."""

    def __deepcopy__(self, memo: Any) -> Any:
        return self.__reduce_ex__(0)

    def __reduce_ex__(self, protocol: Any) -> Any:
        remedy = "remove the extension, copy, and extend both; rw.save writes an extended model"
        raise InvalidValue.because("model", "a model under an extension cannot be copied or pickled", remedy=remedy)


class Owner(NeverCopied):
    """One extended model, as the owner of the caches that it fills."""

    def __init__(self, extension: Extension, mode: str, layers: Basis) -> None:
        self.mark = OwnerMark(extension, mode, layers)

    def before(self, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """The hook before a forward: refuse a cache of another owner."""
        cache = _find_cache((*args, *kwargs.values()))
        if cache is not None:
            self.require(cache)

    def after(self, _: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        """The hook after a forward: own the cache that the model has made."""
        cache = _find_cache(tuple(output.values()) if isinstance(output, dict) else output)
        if cache is not None and getattr(cache, _MARK, None) is not self.mark:
            self._claim(cache)

    def require(self, cache: Any) -> None:
        """Refuse a cache that another owner filled; own any other."""
        mark = getattr(cache, _MARK, None)
        if mark is self.mark:
            return
        if mark != self.mark and cache.get_seq_length() > 0:
            filled = "by the base model" if mark is None else f"under {mark.extension.to_json()}, mode {mark.mode}"
            if mark is not None and (mark.extension, mark.mode) == (self.mark.extension, self.mark.mode):
                filled = "under this extension by another model, or with another trained_len or lift_windows"
            raise Conflict.because("past_key_values", f"past_key_values was filled {filled}", remedy=REMEDY)
        self._claim(cache)

    def _claim(self, cache: Any) -> None:
        """Mark the cache with this owner."""
        cache.__dict__.pop("update", None)
        setattr(cache, _MARK, self.mark)
        if not torch.compiler.is_compiling():  # which has no weak references
            self.mark.caches.add(cache)

    def release(self) -> None:
        """The extension is removed: the base model must not use the caches that it filled."""
        for cache in self.mark.caches:
            if getattr(cache, _MARK, None) is self.mark:
                cache.update = partial(_refuse_after_removal, cache)


def _find_cache(values: tuple[Any, ...]) -> Any:
    for value in values:
        if isinstance(value, Cache):
            return value
    return None


def _refuse_after_removal(cache: Any, *args: Any, **kwargs: Any) -> Any:
    """`update` of a cache whose extension was removed: refused, unless the cache was emptied."""
    if cache.get_seq_length() > 0:
        raise Conflict.because("past_key_values", REMOVED, remedy=REMEDY)
    for name in ("update", _MARK):
        cache.__dict__.pop(name, None)
    return cache.update(*args, **kwargs)


# Caches that keep what the reach needs, behind transformers' interface.


# How many tokens may be removed again, because an assistant proposed them and the model rejected them.
SPARE: ContextVar[int] = ContextVar("spare", default=0)
SHARING = getattr(cache_utils, "DummyLayer", None)  # of a layer that shares another's keys, from transformers 5.20 on
PLAIN = (DynamicLayer, DynamicSlidingWindowLayer)  # what `generate` makes by default


class ExtendedCacheLayer(CacheLayerMixin):  # type: ignore[no-untyped-call]
    """One layer cache. New keys and values pass through to the attention function, which stores them."""

    is_sliding = False
    supports_early_init = False

    def __init__(self, state: CacheState) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.memory = cache_for(state)
        self.expected = False  # whether a pass of the extended model is running

    @property
    def is_croppable(self) -> bool:  # type: ignore[override]
        """Whether tokens can be removed again, as assisted decoding does."""
        buffers = (buffer for state in self.memory.state.members for buffer in state.buffers)
        return all(not isinstance(buffer, RingBuffer) or buffer.spare > 0 for buffer in buffers)

    def activate_past_recording(self) -> None:
        """Called before tokens that may be removed again; too late where their keys are gone."""
        if self.memory.count and not self.is_croppable:
            sentence = "this reach forgets keys, so a cache for assisted decoding must begin in an assisted call"
            raise InvalidValue.because("past_key_values", sentence, remedy="begin with a new cache")

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing: the layer cache allocates by itself."""

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """The new keys and values unchanged; only the model that the cache was made for calls this."""
        if not self.expected:
            raise Conflict.because("past_key_values", REMOVED, remedy=REMEDY)
        return key_states, value_states

    def get_seq_length(self) -> int:
        """How many tokens were read."""
        return self.memory.count

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """As if everything were kept: the layer cache handles visibility itself."""
        return self.memory.count + query_length, 0

    def get_max_length(self) -> int:
        """No limit."""
        return -1

    def reset(self) -> None:
        """Start again, empty."""
        self.memory = cache_for(self.memory.state)

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """The rows in another order."""
        self.memory.select(beam_idx.tolist())

    def batch_select_indices(self, indices: Tensor) -> None:
        """Some of the rows."""
        rows = torch.arange(self.memory.batch)[indices.cpu()]
        self.memory.select(rows.tolist())

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Every row so many times."""
        self.memory.select([row for row in range(self.memory.batch) for _ in range(repeats)])

    def crop(self, tokens_to_remove: int) -> None:
        """Remove the last tokens; transformers counts them below 0."""
        if self.memory.count:  # not where the first layers alone have run, as an early exit does
            self.memory.forget(-tokens_to_remove)


def is_fresh(cache: Any, slots: Sequence[int]) -> bool:
    """Whether a cache is a plain one, or ours, and empty: then ours takes its place.

    Only the slots of attention count; other layers keep their own contents, in a cache made for the model.
    """
    if type(cache) not in (DynamicCache, RoundedCache) or cache.offloading:
        return False
    if not cache.layers:
        return sorted(slots) == list(range(len(slots)))
    return max(slots) < len(cache.layers) and all(_is_empty(cache.layers[slot]) for slot in slots)


def _is_empty(layer: Any) -> bool:
    """A layer that shares another's keys has none itself, and counts as empty."""
    return type(layer) is SHARING or (type(layer) in (*PLAIN, ExtendedCacheLayer) and layer.get_seq_length() == 0)


def held_bytes(cache: DynamicCache) -> int:
    """The bytes of a cache's keys and values, with the room that it reserves."""
    return sum(
        layer.memory.nbytes if isinstance(layer, ExtendedCacheLayer) else layer_bytes(layer) for layer in cache.layers
    )


def adopt(cache: DynamicCache, states: Mapping[int, CacheState]) -> None:
    """Fill the attention slots of a fresh cache with layer caches, one per state."""
    layers: list[Any] = cache.layers or [None] * len(states)
    for slot, state in states.items():
        layers[slot] = ExtendedCacheLayer(state)
    cache.layers = layers
    cache.layer_class_to_replicate = None


# Which tokens of a pass the model writes, for a reach that sees less while it reads.
#
# Legend: b batch, i query.


Firsts = tuple[int, ...]  # the first written token of every row, or of all rows
_WRITTEN_FROM: ContextVar[Firsts | None] = ContextVar("written from", default=None)


@contextmanager
def writing(first: int | Sequence[int] = 0) -> Iterator[None]:
    """Inside this block a model writes the tokens from `first` on, and reads those before: where the prompt ends.

        with rw.writing(30):  # a prompt of 30 tokens; writing() where all are written, as in a loop of your own
            loss = model(ids, labels=ids).loss

    Outside, a pass reads all of its tokens. `generate`, `rw.stream` and `rw.nbce_generate` say by themselves what they
    write. It matters for a reach that tells them apart alone, such as that of swaa.

    Args:
        first: counted as the cache counts, padding included; a number, or one for each row.
    """
    stated: tuple[Any, ...] = tuple(first) if isinstance(first, Sequence) else (first,)
    if not stated or any(isinstance(one, bool) or not isinstance(one, int) or not 0 <= one < 2**62 for one in stated):
        raise InvalidValue("first", "a whole number, at least 0, or one for each row", first)
    with scoped(_WRITTEN_FROM, stated):
        yield


@contextmanager
def generating(arguments: Mapping[str, Any]) -> Iterator[None]:
    """A call of `generate`: what follows its prompt is written. What a block around it says stays in force."""
    if _WRITTEN_FROM.get() is not None:
        yield
        return
    with writing(_prompt_len(arguments)):
        yield


def _prompt_len(arguments: Mapping[str, Any]) -> int:
    """The length of a prompt. Where a cache is continued by new tokens alone, the mask has the whole length."""
    names = ("inputs", "input_ids", "inputs_embeds", "attention_mask")
    stated = [x for name in names if isinstance(x := arguments.get(name), Tensor) and x.dim() > 1]
    return max((x.shape[1] for x in stated), default=1)  # without a prompt, one token begins the text


def written_of(batch: int, past: int, total: int) -> Tensor | None:
    """Which slots from `past` to `total` the model writes, [batch, tokens]; nothing where it reads all of them."""
    firsts = _WRITTEN_FROM.get()
    if firsts is None:
        return None
    if len(firsts) not in (1, batch):
        raise InvalidValue("first", f"a number, or one for each of {batch} rows", list(firsts))
    written_bi = (torch.arange(past, total) >= torch.tensor(firsts)[:, None]).expand(batch, -1)
    return written_bi if written_bi.any() else None
