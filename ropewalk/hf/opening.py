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
from ropewalk.attention.retention import retained
from ropewalk.errors import Conflict, InvalidValue
from ropewalk.extension import Extension
from ropewalk.facts import Facts
from ropewalk.hf.belonging import BareOnly, Owner
from ropewalk.hf.caches import SPARE, MemoryLayer, adopt, is_fresh
from ropewalk.hf.layers import NAME, Attached, fetched, lifted
from ropewalk.hf.passes import CURRENT, DOCUMENTS, PASS, Pass, make_pass, size, states_numbers
from ropewalk.inputs import PAD

Begins = tuple[int, ...]


class Opening(BareOnly):
    """The hook before the forward of the base model."""

    def __init__(self, base: PreTrainedModel, owner: Owner, own: Sequence[Attached]) -> None:
        self._signature = inspect.signature(base.forward)
        names = self._signature.parameters.values()
        self._rest = next((each.name for each in names if each.kind is each.VAR_KEYWORD), None)
        self._owner, self._own = owner, own

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def __call__(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[()], dict[str, Any]]:
        """The arguments by name, with the pass among them."""
        _require_ours(module)
        given = dict(self._signature.bind_partial(*args, **kwargs).arguments)
        given |= given.pop(self._rest, {}) if self._rest else {}
        given["past_key_values"] = _cache(module, given, self._own)
        random, weighing = _random(self._owner.mark.extension, module), _weighing(module, given)
        now = make_pass(given, len(self._own), random=random, weighing=weighing)
        if now.cache is not None:
            self._owner.require(now.cache)
            _see_to(now.cache, now, self._own)
        CURRENT.set(now)
        given.pop(DOCUMENTS, None)
        return (), {**given, PASS: now} if self._rest else given


def closing(module: nn.Module, args: Any, output: Any) -> None:
    """The hook after it: a pass that is over holds no cache, and is no other pass's."""
    CURRENT.set(None)


def numbered(_: nn.Module, args: tuple[Any, ...], given: dict[str, Any]) -> tuple[Any, dict[str, Any]] | None:
    """The hook before a forward by tables: position ids mean what they mean under attention of ours.

    transformers takes every gap for the border of two texts, and sees none where there is a cache.
    """
    if given.get("position_ids") is None or torch.compiler.is_compiling() or not states_numbers(given):
        return None
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


def _require_ours(module: Any) -> None:
    """Refuse to go on without positions where somebody has changed the model's attention in between."""
    name = module.config._attn_implementation
    if name != NAME:
        remedy = "remove the extension first, or extend again afterwards"
        raise Conflict("attention implementation", f"left at {NAME} under an extension", name, remedy=remedy)


def _random(extension: Extension, module: nn.Module) -> Any:
    """How tokens are numbered, where training numbers them otherwise than one after the other."""
    return extension.positions if module.training else None


def _weighing(module: Any, given: dict[str, Any]) -> bool:
    """Whether somebody asks for the weights of attention."""
    asked = given.get("output_attentions")
    return bool(module.config.output_attentions if asked is None else asked)


def _cache(module: Any, given: dict[str, Any], own: Sequence[Attached]) -> Any:
    """The cache that was given, or the one that the model would make for itself further on."""
    cache, use_cache = given.get("past_key_values"), given.get("use_cache")
    wanted = module.config.use_cache if use_cache is None else use_cache
    if cache is None and wanted and not module.training and not states_numbers(given):
        cache = DynamicCache(config=None if any(map(lifted, own)) else module.config)
    if cache is not None and len(getattr(cache, "layers", ())) > len(own):
        rule = "False on a model some of whose layers are no attention"
        raise InvalidValue("use_cache", rule, True, remedy="pass use_cache=False, or extend it by a static schedule")
    return cache


def _see_to(cache: Any, now: Pass, own: Sequence[Attached]) -> None:
    """Ours in the place of a plain fresh cache; no other padding than before."""
    if cache.offloading and not torch.cuda.is_available():
        remedy = "leave it out: here memory is the processor's anyway"
        raise InvalidValue("past_key_values", "kept where it is without CUDA", "offloading", remedy=remedy)
    begins = _begins(now)
    plain = now.weighing or torch.is_grad_enabled() or any(map(fetched, own))
    if begins and is_fresh(cache) and not plain:
        adopt(cache, _sessions(own, begins))
    _require_reach(cache, own)
    memories = [layer for layer in cache.layers if isinstance(layer, MemoryLayer)]
    if memories and now.weighing:
        remedy = "ask for them from the first token on, or pass use_cache=False"
        raise InvalidValue("output_attentions", "False where the cache keeps only what is needed", True, remedy=remedy)
    known = memories[0].memory.session.begins if memories else begins
    if now.masked and begins != known:
        rule = f"0 where the cache has padding (rows begin at {known}) and nowhere else"
        remedy = "begin with a new cache, or pass use_cache=False"
        raise InvalidValue("attention_mask", rule, f"rows that begin at {begins}", remedy=remedy)
    for layer in memories:
        layer.expected = True


def _require_reach(cache: Any, own: Sequence[Attached]) -> None:
    """Refuse a cache that was made for windows of the model's own where an extension looks beyond them."""
    for each, layer in zip(own, cache.layers, strict=False):  # a cache may make its layers when they are asked for
        if getattr(layer, "is_sliding", False) and lifted(each) and not _sees_within(each, each.layer.window):
            rule = "one that keeps what lifted windows reach"
            remedy = "pass use_cache=False, or a DynamicCache() made without the config"
            raise InvalidValue("past_key_values", rule, f"{type(layer).__name__} in layer {each.depth}", remedy=remedy)


def _sees_within(own: Attached, window: int | None) -> bool:
    kept = retained(own.extension.spans)
    return not kept.first and kept.last is not None and window is not None and kept.last <= window


def _begins(now: Pass) -> Begins | None:
    """The number of each row's first slot; nothing where padding is not on the left alone or a row is all padding."""
    if now.numbers_bj is None:
        return (0,)
    begins = (now.numbers_bj[:, -1] - now.total + 1).tolist()
    slots = torch.arange(now.total)
    left = [torch.equal(row, (slots + begin).clamp(min=PAD)) for row, begin in zip(now.numbers_bj, begins, strict=True)]
    if not all(left) or int(now.numbers_bj[:, -1].min()) < 0:
        return None
    return (begins[0],) if len(set(begins)) == 1 else tuple(begins)


def _sessions(own: Sequence[Attached], begins: Begins) -> list[Session]:
    """One for each layer; layers that are alike share one."""
    made: dict[tuple[Extension, Facts, int], Session] = {}
    found = []
    for each in own:
        key = each.extension, each.facts, each.depth if each.weights else -1
        if key not in made:
            made[key] = Session(each.extension, each.facts, begins=begins, weights=each.weights, spare=SPARE.get())
        found.append(made[key])
    return found
