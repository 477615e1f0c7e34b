"""What a model's own cache holds, found out by letting it make one: which of its layers, and how many bytes a token.

Layers of a cache are addressed by their slot. A layer may use the keys of another, a cache may hold what is no keys at
all, and latent keys are fewer than those that attention sees.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from torch import Tensor
from transformers import Cache, DynamicCache

from ropewalk.hf.probe.capture import CapturedCall

BEGUN = 2  # tokens that a cache is made of; one more shows how it grows


class CachedLayer(NamedTuple):
    """Where one layer's keys stand in the cache."""

    slot: int  # of its own
    source: int  # of the layer whose keys it is handed, its own but where layers share
    growth: int  # bytes that a token adds there; none where it shares
    fixed: int  # bytes that the whole cache holds whatever the length


class GrownCache(NamedTuple):
    """A model's own cache as it grew by one token."""

    usual: bool  # whether it is of the kind that transformers makes for any model
    slots: tuple[int | None, ...]  # where each call of attention had put its keys; nothing where it put none
    growth: tuple[int, ...]  # bytes that the token added, by slot
    fixed: int  # bytes that are held whatever the length


def _made(model: Any, ids: Tensor) -> Any:
    """The cache that a model makes for itself; one that fails when it is to make one has none."""
    try:
        cache = getattr(model(input_ids=ids, use_cache=True), "past_key_values", None)
    except Exception:  # of whatever kind: it is the model's own code on its own terms
        return None
    return cache if isinstance(cache, Cache) and hasattr(cache, "layers") else None


class CacheWatch:
    """Notes which slots are filled before each call of attention."""

    def __init__(self, heard: Sequence[Any]) -> None:
        self._heard, self._filled = heard, list[tuple[int, int]]()

    def over(self, cache: Cache) -> None:
        """From now on."""
        own = cache.update

        def update(k: Tensor, v: Tensor, layer_idx: int, *args: Any, **given: Any) -> Any:
            self._filled.append((len(self._heard), layer_idx))
            return own(k, v, layer_idx, *args, **given)

        cache.__dict__["update"] = update

    @property
    def slots(self) -> tuple[int | None, ...]:
        """Of each call."""
        filled = dict(self._filled)
        return tuple(filled.get(call) for call in range(len(self._heard)))


def grown(model: Any, ids: Tensor, heard: list[Any]) -> GrownCache | None:
    """What the model's own cache does; nothing where it keeps none of transformers'."""
    cache = _made(model, ids[:, :BEGUN])
    if cache is None:
        return None
    before, watch = [layer_bytes(layer) for layer in cache.layers], CacheWatch(heard)
    heard.clear()
    watch.over(cache)
    model(input_ids=ids[:, BEGUN : BEGUN + 1], past_key_values=cache, use_cache=True)
    growth = tuple(layer_bytes(layer) - held for layer, held in zip(cache.layers, before, strict=False))
    fixed = sum(held - BEGUN * more for held, more in zip(before, growth, strict=False))
    return GrownCache(type(cache) is DynamicCache, watch.slots, growth, max(fixed, 0))


def places(own: GrownCache | None, heard: Sequence[CapturedCall]) -> list[CachedLayer | None]:
    """Where each call of attention finds its keys; nothing where the cache is of a kind of its own."""
    if own is None or not own.usual:
        return []
    return [_place(own, heard, call) for call in range(len(heard))]


def _place(own: GrownCache, heard: Sequence[CapturedCall], call: int) -> CachedLayer | None:
    slot = own.slots[call]
    if slot is not None:
        return CachedLayer(slot, slot, own.growth[slot], own.fixed)
    for earlier, source in zip(heard[:call], own.slots, strict=False):
        if source is not None and _same(earlier.k_bhnd, heard[call].k_bhnd):
            return _sharing(own, getattr(heard[call].module, "layer_idx", None), source)
    return None


def _sharing(own: GrownCache, slot: Any, source: int) -> CachedLayer | None:
    """A layer that uses another's keys has a slot by the number that it goes by, where that is nobody's."""
    if not isinstance(slot, int) or slot in own.slots or not 0 <= slot < len(own.growth):
        return None
    return CachedLayer(slot, source, 0, own.fixed)


def _same(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors are one."""
    return one.data_ptr() == other.data_ptr() and one.shape == other.shape


def cache_growth(layers: Sequence[Any], itemsize: int) -> float:
    """How many times the bytes of the model's own cache keys and values of all heads take: more than 1 where that holds
    latent ones, or where layers share."""
    placed = [layer for layer in layers if layer.cached]
    own = sum(layer.cached.growth for layer in placed)
    whole = sum(layer.groups * (layer.head_dim + layer.value_dim) * itemsize for layer in placed)
    return whole / own if own else 1.0


def layer_bytes(layer: Any) -> int:
    """Of all numbers that one layer of a cache holds."""
    return sum(each.nbytes for each in _tensors(vars(layer)) if each.is_floating_point())


def _tensors(held: Any) -> Iterator[Tensor]:
    if isinstance(held, Tensor):
        yield held
    elif isinstance(held, dict):
        yield from (each for part in held.values() for each in _tensors(part))
    elif isinstance(held, list | tuple):
        yield from (each for part in held for each in _tensors(part))
