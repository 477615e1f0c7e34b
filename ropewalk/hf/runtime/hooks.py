"""What happens before each forward of an extended model: its pass is made, and its cache is seen to.

Legend: b batch, j slot.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from transformers import DynamicCache, PreTrainedModel

from ropewalk.attention import Session
from ropewalk.attention.layout.retention import reach_retention
from ropewalk.errors import Conflict, InvalidValue
from ropewalk.extension import Extension
from ropewalk.facts import Facts
from ropewalk.hf.runtime.cache_owner import NeverCopied, Owner
from ropewalk.hf.runtime.caches import SPARE, ExtendedCacheLayer, adopt, is_fresh
from ropewalk.hf.runtime.forward_pass import CURRENT, DOCUMENTS, PASS, ForwardPass, make_pass, size, states_numbers
from ropewalk.hf.runtime.layer import NAME, ExtendedLayer, fetched, lifted
from ropewalk.inputs import PAD

Begins = tuple[int, ...]
_SHIFTS = "_ropewalk_shifts"  # of a cache: by how much the numbers that it was begun with exceed its slots


class ForwardPreHook(NeverCopied):
    """The hook before the forward of the base model."""

    def __init__(self, base: PreTrainedModel, owner: Owner, own: Sequence[ExtendedLayer]) -> None:
        self._signature = inspect.signature(base.forward)
        names = self._signature.parameters.values()
        self._rest = next((each.name for each in names if each.kind is each.VAR_KEYWORD), None)
        self._owner, self._own, self._config = owner, own, base.config.get_text_config()
        self._places = [each.probed.cached for each in own]

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def __call__(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[()], dict[str, Any]]:
        """The arguments by name, with the pass among them."""
        _require_ours(self._config)
        given = dict(self._signature.bind_partial(*args, **kwargs).arguments)
        given |= given.pop(self._rest, {}) if self._rest else {}
        cache = given["past_key_values"] = self._cache(module, given)
        random, weighing = _random(self._owner.mark.extension, module), _weighing(self._config, given)
        begins = _known(cache, least=1) or (0,)
        now = make_pass(given, self._places, random=random, weighing=weighing, begins=begins)
        if now.cache is not None:
            self._owner.require(now.cache)
            _see_to(now.cache, now, self._own)
            _require_same_start(now)
        CURRENT.set(now)
        given.pop(DOCUMENTS, None)
        return (), {**given, PASS: now} if self._rest else given

    def _cache(self, module: nn.Module, given: dict[str, Any]) -> Any:
        """The cache that was given, or the one that the model would make for itself further on."""
        cache, use_cache = given.get("past_key_values"), given.get("use_cache")
        wanted = getattr(self._config, "use_cache", False) if use_cache is None else use_cache
        asked = wanted and not module.training and not states_numbers(given)
        if (cache is not None or asked) and None in self._places:
            rule = "False on a model that keeps keys otherwise than transformers' caches do"
            remedy = "pass use_cache=False, or extend it by a static schedule"
            raise InvalidValue("use_cache", rule, True, remedy=remedy)
        if cache is None and asked:
            cache = DynamicCache(config=None if any(map(lifted, self._own)) and self._alone else self._config)
        return cache

    @property
    def _alone(self) -> bool:
        """Whether attention is all that the model's cache is for."""
        return sorted(place.slot for place in self._places if place) == list(range(len(self._places)))


def after_forward(module: nn.Module, args: Any, output: Any) -> None:
    """The hook after it: a pass that is over holds no cache, and is no other pass's."""
    CURRENT.set(None)


def check_position_ids(_: nn.Module, args: tuple[Any, ...], given: dict[str, Any]) -> tuple[Any, dict[str, Any]] | None:
    """The hook before a forward by tables: position ids mean what they mean under attention of ours.

    transformers takes every gap for the border of two texts, and sees none where there is a cache.
    """
    positions = given.get("position_ids")
    if positions is None or positions.dim() > 2 or torch.compiler.is_compiling() or not states_numbers(given):
        return None  # several numbers a token are those of images, which the model sees to
    steps, cached = given["position_ids"].diff(dim=-1), given.get("past_key_values") is not None
    if (steps > 0).all():  # gaps within one text: a mask says that it is one
        whole = torch.ones(size(given), dtype=torch.long, device=steps.device)
        return None if cached else (args, {**given, "attention_mask": whole})
    if cached or given.get("use_cache") or (steps > 1).any():
        rule = "one after the other with a cache, and without gaps where texts are packed"
        raise InvalidValue(
            "position_ids", rule, steps.tolist()[0][:8], remedy="pass use_cache=False, or extend by attention"
        )
    return args, {**given, "use_cache": False}


def identity_rotation(
    _: nn.Module, args: tuple[Any, ...], given: dict[str, Any], output: tuple[Any, Any]
) -> tuple[Any, Any]:
    """The rotary module's answer that turns nothing: keys reach the cache as they are, and no wider than they come."""
    now, positions = CURRENT.get(), args[1] if len(args) > 1 else given.get("position_ids")
    if now is not None and isinstance(positions, torch.Tensor) and not torch.compiler.is_compiling():
        now.require_numbered(positions)
    cos, sin = output
    device = cos.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else cos.dtype
    return torch.ones_like(cos, dtype=dtype), torch.zeros_like(sin, dtype=dtype)


def _require_ours(config: Any) -> None:
    """Refuse to go on without positions where somebody has changed the model's attention in between."""
    name = config._attn_implementation
    if name != NAME:
        remedy = "remove the extension first, or extend again afterwards"
        raise Conflict("attention implementation", f"left at {NAME} under an extension", name, remedy=remedy)


def _random(extension: Extension, module: nn.Module) -> Any:
    """How tokens are numbered, where training numbers them otherwise than one after the other."""
    return extension.positions if module.training else None


def _weighing(config: Any, given: dict[str, Any]) -> bool:
    """Whether somebody asks for the weights of attention."""
    asked = given.get("output_attentions")
    return bool(config.output_attentions if asked is None else asked)


def _see_to(cache: Any, now: ForwardPass, own: Sequence[ExtendedLayer]) -> None:
    """Ours in the place of a plain fresh cache; no other padding than before."""
    if cache.offloading and not torch.cuda.is_available():
        remedy = "leave it out: here memory is the processor's anyway"
        raise InvalidValue("past_key_values", "kept where it is without CUDA", "offloading", remedy=remedy)
    begins = _begins(now)
    # Memories number tokens from 0 on, padding before that.
    plain = now.weighing or torch.is_grad_enabled() or any(map(fetched, own)) or max(begins or (0,)) > 0
    slots = [each.probed.cached.slot for each in own if each.probed.cached]
    if begins and is_fresh(cache, slots) and not plain:
        adopt(cache, dict(zip(slots, _sessions(own, begins), strict=True)))
    _require_reach(cache, own)
    memories = [layer for layer in cache.layers if isinstance(layer, ExtendedCacheLayer)]
    if memories and now.weighing:
        remedy = "ask for them from the first token on, or pass use_cache=False"
        raise InvalidValue("output_attentions", "False where the cache keeps only what is needed", True, remedy=remedy)
    known = _known(cache) or begins
    if now.masked and begins != known:
        rule = f"0 where the cache has padding (rows begin at {known}) and nowhere else"
        remedy = "begin with a new cache, or pass use_cache=False"
        raise InvalidValue("attention_mask", rule, f"rows that begin at {begins}", remedy=remedy)
    for layer in memories:
        layer.expected = True


def _require_reach(cache: Any, own: Sequence[ExtendedLayer]) -> None:
    """Refuse a cache that was made for windows of the model's own where an extension looks beyond them."""
    for each in own:
        slot = each.probed.cached.source if each.probed.cached else 0
        layer = cache.layers[slot] if slot < len(cache.layers) else None  # made when it is asked for
        if getattr(layer, "is_sliding", False) and lifted(each) and not _sees_within(each, each.probed.window):
            rule = "one that keeps what lifted windows reach"
            remedy = "pass use_cache=False, or a DynamicCache() made without the config"
            raise InvalidValue("past_key_values", rule, f"{type(layer).__name__} in layer {each.depth}", remedy=remedy)


def _known(cache: Any, least: int = 0) -> Begins | None:
    """The numbers of the rows' first slots, where a memory of ours knows them that has read so many tokens."""
    memories = (layer.memory for layer in getattr(cache, "layers", ()) if isinstance(layer, ExtendedCacheLayer))
    return next((each.session.begins for each in memories if each.count >= least), None)


def _require_same_start(now: ForwardPass) -> None:
    """Refuse to number the tokens of one text from different places."""
    begun: frozenset[int] = now.cache.__dict__.get(_SHIFTS, frozenset({0}))
    if now.total == now.queries:
        begun = now.cache.__dict__[_SHIFTS] = now.shifts or frozenset({0})
    if not (now.shifts or frozenset({0})) <= begun:
        rule = f"counted from where the cache was begun ({sorted(begun)} above its slots)"
        got = "left out" if now.shifts is None else sorted(now.shifts)
        raise InvalidValue("position_ids", rule, got, remedy="state them in every call, or in none")


def _sees_within(own: ExtendedLayer, window: int | None) -> bool:
    kept = reach_retention(own.extension.spans)
    return not kept.first and kept.last is not None and window is not None and kept.last <= window


def _begins(now: ForwardPass) -> Begins | None:
    """The number of each row's first slot; nothing where padding is not on the left alone or a row is all padding."""
    if now.numbers_bj is None:
        return (0,)
    begins = (now.numbers_bj[:, -1] - now.total + 1).tolist()
    slots = torch.arange(now.total)
    left = [torch.equal(row, (slots + begin).clamp(min=PAD)) for row, begin in zip(now.numbers_bj, begins, strict=True)]
    if not all(left) or int(now.numbers_bj[:, -1].min()) < 0:
        return None
    return (begins[0],) if len(set(begins)) == 1 else tuple(begins)


def _sessions(own: Sequence[ExtendedLayer], begins: Begins) -> list[Session]:
    """One for each layer; layers that are alike share one."""
    made: dict[tuple[Extension, Facts, int], Session] = {}
    found = []
    for each in own:
        key = each.extension, each.facts, each.depth if each.weights else -1
        if key not in made:
            made[key] = Session(each.extension, each.facts, begins=begins, weights=each.weights, spare=SPARE.get())
        found.append(made[key])
    return found
