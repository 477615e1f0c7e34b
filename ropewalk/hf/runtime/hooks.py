"""What runs before a model's own forward pass and rotation."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import DynamicCache, PreTrainedModel

from ropewalk.attention import CacheState
from ropewalk.attention.layout.retention import extension_retention
from ropewalk.errors import Conflict, DoesNotFit, InvalidValue
from ropewalk.extension.extension import Extension
from ropewalk.extension.inputs import PAD
from ropewalk.hf.probe.capture import RotaryOutput, cos_and_sin, fill_output, is_rotation
from ropewalk.hf.runtime.caches import SPARE, ExtendedCacheLayer, NeverCopied, Owner, adopt, is_fresh
from ropewalk.hf.runtime.forward_pass import (
    CONTINUOUS,
    CURRENT,
    DOCUMENTS,
    PAGES,
    PASS,
    STATIC_OR_GENERATE,
    ForwardPass,
    by_name,
    make_pass,
    rest_of,
    size,
    states_numbers,
)
from ropewalk.hf.runtime.layer import MIXTURES, NAME, ExtendedLayer, is_lifted, is_on_disk
from ropewalk.hf.runtime.own_masks import INSIDE
from ropewalk.methods.facts import Facts

# The rotation of a rotary module, kept beside the identity that attention gets instead.
#
# What chooses keys inside an attention module rotates by itself, and is called with the same cos and sin. There the
# rotation that was computed is put back: the choice is made as it was trained.


@torch.compiler.disable  # type: ignore[untyped-decorator]
def keep_rotation(
    module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: RotaryOutput
) -> RotaryOutput:
    """The hook after a rotary module: cos = 1 and sin = 0; the pass keeps what was computed, by module and type."""
    now = CURRENT.get()
    if now is not None:
        layer_type = next((value for value in (*args, *kwargs.values()) if isinstance(value, str)), None)
        now.rotations.by_call[module, layer_type] = output
    return identity_rotation(module, args, kwargs, output)


@torch.compiler.disable  # type: ignore[untyped-decorator]
def put_back(
    rotary: nn.Module | None, layer_type: str | None, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, Any]:
    """The hook before a module inside an attention module: the rotation that was computed, in place of the identity."""

    def real(argument: Any) -> Any:
        return _kept_rotation(module, (rotary, layer_type), argument) if _may_rotate(argument) else argument

    return tuple(map(real, args)), {name: real(value) for name, value in kwargs.items()}


def _kept_rotation(
    module: nn.Module, call: tuple[nn.Module | None, str | None], identity: RotaryOutput
) -> RotaryOutput:
    """The rotation of the layer's own call, or the only one of the pass, where the identity is."""
    now, place = INSIDE.get(), _first(identity)
    kept: dict[Any, RotaryOutput] = {} if now is None else now.rotations.by_call
    rotation = kept.get(call, next(iter(kept.values())) if len(kept) == 1 else None)
    if rotation is None or _first(rotation).shape != place.shape:
        sentence = f"{type(module).__name__} is called with cos and sin that no rotary module of this pass has computed"
        raise DoesNotFit.because("rotary module", sentence, remedy="use a static schedule")
    if isinstance(rotation, Tensor):
        return rotation.to(place.device)
    cos, sin = rotation
    return cos.to(place.device), sin.to(place.device)


def _may_rotate(argument: Any) -> bool:
    pair = isinstance(argument, tuple) and len(argument) == 2 and all(isinstance(part, Tensor) for part in argument)
    return (pair or isinstance(argument, Tensor)) and is_rotation(argument)


def _first(rotation: RotaryOutput) -> Tensor:
    return rotation if isinstance(rotation, Tensor) else rotation[0]


# The hooks around each forward pass of an extended model: they describe the pass and prepare the cache.
#
# Legend: b batch, j slot.


Begins = tuple[int, ...]
_SHIFTS = "_ropewalk_shifts"  # of a cache: its first position ids minus its slots


class ForwardPreHook(NeverCopied):
    """The hook before the forward of the base model."""

    def __init__(self, base: PreTrainedModel, owner: Owner, layers: Sequence[ExtendedLayer]) -> None:
        self._signature = inspect.signature(base.forward)
        self._takes_more = bool(rest_of(self._signature))
        self._owner, self._layers, self._config = owner, layers, base.config.get_text_config()
        self._places = [layer.probed.cached for layer in layers]

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def __call__(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[()], dict[str, Any]]:
        """The arguments by name, with the pass added."""
        _require_ours(self._config)
        arguments = by_name(self._signature, args, kwargs)
        if PAGES in arguments:  # batching that began before the model was extended
            raise DoesNotFit.because("continuous batching", CONTINUOUS, remedy=STATIC_OR_GENERATE)
        cache = arguments["past_key_values"] = self._cache(module, arguments)
        if cache is None and "use_cache" in self._signature.parameters:
            arguments["use_cache"] = False  # or the model would make one that is nobody's
        random = self._owner.mark.extension.positions if module.training else None
        wanted = arguments.get("output_attentions")
        weights = bool(self._config.output_attentions if wanted is None else wanted)
        begins = _known_begins(cache, least=1) or (0,)
        now = make_pass(arguments, self._places, random=random, wants_weights=weights, begins=begins)
        if now.cache is not None:
            self._owner.require(now.cache)
            _prepare(now.cache, now, self._layers)
            _require_same_start(now)
        CURRENT.set(now)
        arguments.pop(DOCUMENTS, None)
        return (), {**arguments, PASS: now} if self._takes_more else arguments

    def _cache(self, module: nn.Module, arguments: dict[str, Any]) -> Any:
        """The cache that the caller passed, or the one that the model would make."""
        cache, use_cache = arguments.get("past_key_values"), arguments.get("use_cache")
        by_default = getattr(self._config, "use_cache", False) and None not in self._places
        requested = by_default if use_cache is None else use_cache
        needs_cache = requested and not module.training and not states_numbers(arguments)
        if (cache is not None or needs_cache) and None in self._places:
            rule = "False on a model whose keys are not in transformers' caches"
            remedy = "pass use_cache=False, or use a static schedule"
            raise InvalidValue("use_cache", rule, True, remedy=remedy)
        if cache is None and needs_cache:
            attention_only = sorted(place.slot for place in self._places if place) == list(range(len(self._places)))
            lifted = any(map(is_lifted, self._layers)) and attention_only
            cache = DynamicCache(config=None if lifted else self._config)
        return cache


def after_forward(module: nn.Module, args: Any, output: Any) -> None:
    """The hook after the forward: a finished pass holds no cache and is not used by the next."""
    CURRENT.set(None)


def check_position_ids(
    module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, dict[str, Any]] | None:
    """The hook before a forward in mode tables: position ids mean the same as under Ropewalk's attention.

    transformers takes every gap as the border of two texts, and ignores borders where there is a cache.
    """
    if args:
        args, kwargs = (), by_name(inspect.signature(module.forward), args, kwargs)
    positions = kwargs.get("position_ids")
    if PAGES in kwargs:  # continuous batching states the borders of texts itself
        return None
    if positions is None or positions.dim() > 2 or torch.compiler.is_compiling() or not states_numbers(kwargs):
        return None  # several numbers per token are those of images, which the model handles
    steps, cached = kwargs["position_ids"].diff(dim=-1), kwargs.get("past_key_values") is not None
    if (steps > 0).all():  # gaps within one text: a full mask marks it as one text
        whole = torch.ones(size(kwargs), dtype=torch.long, device=steps.device)
        return None if cached else (args, {**kwargs, "attention_mask": whole})
    if cached or kwargs.get("use_cache") or (steps > 1).any():
        rule = "consecutive with a cache, and without gaps where texts are packed"
        remedy = "pass use_cache=False, or extend with mode='attention'"
        raise InvalidValue("position_ids", rule, steps.tolist()[0][:8], remedy=remedy)
    return args, {**kwargs, "use_cache": False}


def identity_rotation(
    _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: RotaryOutput
) -> RotaryOutput:
    """The rotary module's cos = 1 and sin = 0: keys reach the cache unrotated, and in their own precision."""
    now, positions = CURRENT.get(), args[1] if len(args) > 1 else kwargs.get("position_ids")
    if now is not None and isinstance(positions, torch.Tensor) and not torch.compiler.is_compiling():
        now.require_numbered(positions)
    device = cos_and_sin(output)[0].device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
    return fill_output(output, 1, 0, dtype)


def _require_ours(config: Any) -> None:
    """Refuse to continue without positions after the model's attention was changed."""
    name = config._attn_implementation
    if name != NAME:
        remedy = "remove the extension first, or extend again afterwards"
        sentence = f"the attention implementation was changed to {name!r} under an extension"
        raise Conflict.because("attention implementation", sentence, remedy=remedy)


def _prepare(cache: Any, now: ForwardPass, layers: Sequence[ExtendedLayer]) -> None:
    """Replace a plain fresh cache by ours; refuse padding that changes."""
    if cache.offloading and not torch.cuda.is_available():
        remedy = "leave it out: this machine has CPU memory only"
        raise InvalidValue.because("past_key_values", "an offloading cache needs CUDA", remedy=remedy)
    begins = _begins(now)
    slots = [item.probed.cached.slot for item in layers if item.probed.cached]
    if begins and is_fresh(cache, slots) and not _needs_plain_cache(now, layers, begins):
        adopt(cache, dict(zip(slots, _states(layers, begins), strict=True)))
    _require_reach(cache, layers)
    layer_caches = [layer for layer in cache.layers if isinstance(layer, ExtendedCacheLayer)]
    if layer_caches and (now.axes is not None or now.sees_later):
        remedy = "pass the text and its images in one call with a new cache, without prefill_chunk_size"
        raise InvalidValue.because(
            "past_key_values", "this cache was begun for text, and now comes an image", remedy=remedy
        )
    if layer_caches and now.wants_weights:
        remedy = "pass it from the first token on, or pass use_cache=False"
        sentence = "output_attentions=True needs all keys, but this cache keeps only those that the reach needs"
        raise InvalidValue.because("output_attentions", sentence, remedy=remedy)
    known = _known_begins(cache) or begins
    if now.masked and begins != known:
        rule = f"0 where the cache has padding (rows begin at {known}) and nowhere else"
        remedy = "begin with a new cache, or pass use_cache=False"
        raise InvalidValue("attention_mask", rule, f"rows that begin at {begins}", remedy=remedy)
    for layer in layer_caches:
        layer.expected = True


def _needs_plain_cache(now: ForwardPass, layers: Sequence[ExtendedLayer], begins: Begins) -> bool:
    """Whether the keys of this text stay in the model's own cache."""
    if now.wants_weights or torch.is_grad_enabled() or any(map(is_on_disk, layers)) or MIXTURES.get():
        return True
    if max(begins) > 0:  # our caches count positions from 0, padding before that
        return True
    if now.axes is not None or now.sees_later:  # images bring positions of their own
        return True
    # Layers with masks of their own choose among all keys; a module that attends several times fills several slots.
    return any(layer.probed.own_mask or layer.probed.slots for layer in layers)


def _require_reach(cache: Any, layers: Sequence[ExtendedLayer]) -> None:
    """Refuse a cache made for the model's windows where an extension reaches beyond them."""
    for layer in layers:
        slot = layer.probed.cached.source if layer.probed.cached else 0
        held = cache.layers[slot] if slot < len(cache.layers) else None  # made when it is asked for
        if getattr(held, "is_sliding", False) and is_lifted(layer) and not _sees_within(layer, layer.probed.limit):
            rule = "a cache that keeps the keys that lifted windows reach"
            remedy = "pass use_cache=False, or a DynamicCache() made without the config"
            raise InvalidValue("past_key_values", rule, f"{type(held).__name__} in layer {layer.depth}", remedy=remedy)


def _known_begins(cache: Any, least: int = 0) -> Begins | None:
    """The positions of the rows' first slots, by one of our layer caches that has read at least so many tokens."""
    layer_caches = (layer.memory for layer in getattr(cache, "layers", ()) if isinstance(layer, ExtendedCacheLayer))
    return next((cache.state.begins for cache in layer_caches if cache.count >= least), None)


def _require_same_start(now: ForwardPass) -> None:
    """Refuse position ids that count one text from different starts."""
    starts: frozenset[int] = now.cache.__dict__.get(_SHIFTS, frozenset({0}))
    if now.total == now.queries:
        starts = now.cache.__dict__[_SHIFTS] = now.shifts or frozenset({0})
    if not (now.shifts or frozenset({0})) <= starts:
        rule = f"counted from where the cache began ({sorted(starts)} above its slots)"
        got = "left out" if now.shifts is None else sorted(now.shifts)
        raise InvalidValue("position_ids", rule, got, remedy="pass them in every call, or in none")


def _sees_within(layer: ExtendedLayer, window: int | None) -> bool:
    kept = extension_retention(layer.extension)
    return not kept.first and kept.last is not None and window is not None and kept.last <= window


def _begins(now: ForwardPass) -> Begins | None:
    """The position of every row's first slot; None where padding is not only on the left, or a row is all padding."""
    if now.numbers_bj is None:
        return (0,)
    begins = (now.numbers_bj[:, -1] - now.total + 1).tolist()
    slots = torch.arange(now.total)
    left = [torch.equal(row, (slots + begin).clamp(min=PAD)) for row, begin in zip(now.numbers_bj, begins, strict=True)]
    if not all(left) or int(now.numbers_bj[:, -1].min()) < 0:
        return None
    return (begins[0],) if len(set(begins)) == 1 else tuple(begins)


def _states(layers: Sequence[ExtendedLayer], begins: Begins) -> list[CacheState]:
    """One per layer; equal layers share one."""
    shared: dict[tuple[Extension, Facts, int], CacheState] = {}
    states = []
    for layer in layers:
        key = layer.extension, layer.facts, layer.depth if layer.weights else -1
        if key not in shared:
            shared[key] = CacheState(
                layer.extension, layer.facts, begins=begins, weights=layer.weights, spare=SPARE.get()
            )
        states.append(shared[key])
    return states
