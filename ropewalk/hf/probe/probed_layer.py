"""What the probe says of one attention layer, and of the place of its keys in the model's own cache.

Layers of a cache are addressed by their slot. A layer may use the keys of another, a cache may hold other things than
keys, and latent keys are fewer than those that attention sees.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from torch import Tensor, nn
from transformers import Cache, DynamicCache

from ropewalk.hf.probe.capture import CapturedCall
from ropewalk.hf.probe.rotation import LongTable, NormsAfter, PositionTable
from ropewalk.methods.reach import Chunks, Reach, Window

FIRST_TOKENS = 2  # tokens that a cache is filled with; one more shows how it grows


class CachedLayer(NamedTuple):
    """The place of one layer's keys in the cache."""

    slot: int  # of the layer
    source: int  # the slot of the keys that it uses: another layer's where layers share
    growth: int  # bytes that a token adds; 0 where it shares
    fixed: int  # bytes of the whole cache at any length


class ProbedLayer(NamedTuple):
    """What one attention layer does with positions."""

    module: nn.Module
    heads: int
    groups: int
    head_dim: int
    value_dim: int
    scaling: float
    first: int = 0  # the first rotating dimension, and how many rotate
    rotating: int = 0
    interleaved: bool | None = False  # None: its pairs are of no known kind
    norm_follows: bool = False
    norms: NormsAfter = NormsAfter()  # these norms, where they have weights
    inv_freq: tuple[float, ...] = ()  # its own table, radians per position
    temperature: float = 1.0  # the factor of its cos and sin
    varies: bool = False  # whether its table depends on the length of the text
    long_table: LongTable | None = None  # where it has one table for short texts and another for long ones
    plain_scaling: float | None = None  # `scaling` without the model's own schedule, where that was computed
    window: int | None = None
    chunk: int | None = None  # of layers that attend within chunks of the text
    softcap: float | None = None
    sinks: str | None = None  # the module's parameter with a logit per head; empty: it has sinks of another form
    rotary: nn.Module | None = None  # the rotary module with its table
    layer_type: str | None = None  # the layer type in calls of this module, where types have different tables
    clockwise: bool = False  # whether the second of a pair rotates towards the first
    cached: CachedLayer | None = None  # the place of its keys in the model's own cache; None without one
    axes: tuple[int, ...] = ()  # which position rotates each pair, where tokens have several; empty: they have one
    own_mask: bool = False  # whether it makes a mask of its own from the one that it is called with, or chooses keys
    slots: int = 0  # of a module that attends several times in one forward: how many slots of the cache it fills
    positions: PositionTable | None = None  # its table of sin and cos by position, where it has no rotary module
    inline: str = ""  # why its attention cannot be replaced; empty: it calls transformers' attention interface
    unsupported: str = ""  # what it asks of attention that the equation does not have; empty: nothing

    @property
    def stands_still(self) -> bool:
        """Whether it has a rotary table in which every pair stands still: its rotation was dropped."""
        return bool(self.inv_freq) and not any(self.inv_freq)

    @property
    def limit(self) -> int | None:
        """The most keys that its own mask shows a query; None: all."""
        return self.window or self.chunk

    @property
    def reach(self) -> Reach | None:
        """Its window or its chunks."""
        if self.window is not None:
            return Window(window=self.window)
        return None if self.chunk is None else Chunks(chunk=self.chunk)


# The contents of a model's own cache, measured by letting the model fill one: layers, and bytes per token.


class GrownCache(NamedTuple):
    """A model's own cache as it grew by one token."""

    usual: bool  # whether it is a DynamicCache, as transformers makes for most models
    slots: tuple[int | None, ...]  # where each call of attention put its keys; None where it put none
    growth: tuple[int, ...]  # bytes that the token added, by slot
    fixed: int  # bytes at any length


def _make_cache(model: Any, ids: Tensor) -> Any:
    """The cache that a model makes for itself; None where it makes none, or fails."""
    try:
        cache = getattr(model(input_ids=ids, use_cache=True), "past_key_values", None)
    except Exception:  # of any kind: it is the model's own code
        return None
    return cache if isinstance(cache, Cache) and hasattr(cache, "layers") else None


class CacheWatch:
    """Records which slots are filled before each call of attention."""

    def __init__(self, calls: Sequence[Any]) -> None:
        self._calls, self._filled = calls, list[tuple[int, int]]()

    def watch(self, cache: Cache) -> None:
        """Record from now on."""
        original = cache.update

        def update(k: Tensor, v: Tensor, layer_idx: int, *args: Any, **kwargs: Any) -> Any:
            self._filled.append((len(self._calls), layer_idx))
            return original(k, v, layer_idx, *args, **kwargs)

        cache.__dict__["update"] = update

    @property
    def slots(self) -> tuple[int | None, ...]:
        """The slot of each call; None without one."""
        filled = dict(self._filled)
        return tuple(filled.get(call) for call in range(len(self._calls)))


def watch_growth(model: Any, ids: Tensor, calls: list[Any]) -> GrownCache | None:
    """How the model's own cache grows; None where it is not one of transformers'."""
    cache = _make_cache(model, ids[:, :FIRST_TOKENS])
    if cache is None:
        return None
    before, watch = [layer_bytes(layer) for layer in cache.layers], CacheWatch(calls)
    calls.clear()
    watch.watch(cache)
    try:
        model(input_ids=ids[:, FIRST_TOKENS : FIRST_TOKENS + 1], past_key_values=cache, use_cache=True)
    except Exception:  # of any kind: it is the model's own code
        return None
    growth = tuple(layer_bytes(layer) - held for layer, held in zip(cache.layers, before, strict=False))
    fixed = sum(held - FIRST_TOKENS * more for held, more in zip(before, growth, strict=False))
    return GrownCache(type(cache) is DynamicCache, watch.slots, growth, max(fixed, 0))


def places(cache: GrownCache | None, calls: Sequence[CapturedCall]) -> list[CachedLayer | None]:
    """The place of the keys of each call of attention; empty where the model has a cache class of its own."""
    if cache is None or not cache.usual:
        return []
    return [_place(cache, calls, call) for call in range(len(calls))]


def _place(cache: GrownCache, calls: Sequence[CapturedCall], call: int) -> CachedLayer | None:
    slot = cache.slots[call]
    if slot is not None:
        return CachedLayer(slot, slot, cache.growth[slot], cache.fixed)
    for earlier, source in zip(calls[:call], cache.slots, strict=False):
        if source is not None and _share_memory(earlier.k_bhnd, calls[call].k_bhnd):
            return _sharing(cache, getattr(calls[call].module, "layer_idx", None), source)
    return None


def _sharing(cache: GrownCache, slot: Any, source: int) -> CachedLayer | None:
    """The place of a layer that uses another's keys: the slot of its index, where no other layer has that."""
    if not isinstance(slot, int) or slot in cache.slots or not 0 <= slot < len(cache.growth):
        return None
    return CachedLayer(slot, source, 0, cache.fixed)


def _share_memory(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors share their memory."""
    return one.data_ptr() == other.data_ptr() and one.shape == other.shape


def cache_growth(layers: Sequence[Any], itemsize: int) -> float:
    """The bytes of keys and values of all heads over those of the model's own cache: more than 1 where that holds
    latent keys, or where layers share."""
    if any(layer.own_mask for layer in layers):  # then the model's own cache is used
        return 1.0
    placed = [layer for layer in layers if layer.cached and not layer.slots]
    usual = sum(layer.cached.growth for layer in placed)
    whole = sum(layer.groups * (layer.head_dim + layer.value_dim) * itemsize for layer in placed)
    return whole / usual if usual else 1.0


def layer_bytes(layer: Any) -> int:
    """The bytes of all floating-point tensors in one layer of a cache."""
    return sum(tensor.nbytes for tensor in _tensors(vars(layer)) if tensor.is_floating_point())


def _tensors(held: Any) -> Iterator[Tensor]:
    if isinstance(held, Tensor):
        yield held
    elif isinstance(held, dict):
        yield from (tensor for part in held.values() for tensor in _tensors(part))
    elif isinstance(held, list | tuple):
        yield from (tensor for part in held for tensor in _tensors(part))
