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
from ropewalk.errors import Conflict, InvalidValue
from ropewalk.extension import Extension
from ropewalk.facts import Facts
from ropewalk.hf.caches import MemoryLayer, adopt, is_fresh
from ropewalk.hf.layers import NAME, Attached
from ropewalk.hf.passes import CURRENT, PASS, Pass, make_pass, states_numbers
from ropewalk.inputs import PAD

MARK = "_ropewalk"  # of a cache, where the extension is kept that filled it
Begins = tuple[int, ...]


class BareOnly:
    """What an extended model holds and no copy of it may: it would be tied to the model it was made for."""

    def __deepcopy__(self, memo: Any) -> Any:
        return self.__reduce_ex__(0)

    def __reduce_ex__(self, protocol: Any) -> Any:
        remedy = "remove the extension, copy, and extend both; rw.save writes an extended model"
        raise InvalidValue("model", "bare to be copied or pickled whole", "under an extension", remedy=remedy)


class Opening(BareOnly):
    """The hook before the forward of the base model."""

    def __init__(self, base: PreTrainedModel, extension: Extension, own: Sequence[Attached]) -> None:
        self._signature = inspect.signature(base.forward)
        names = self._signature.parameters.values()
        self._rest = next((each.name for each in names if each.kind is each.VAR_KEYWORD), None)
        self._extension, self._own = extension, own

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def __call__(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[()], dict[str, Any]]:
        """The arguments by name, with the pass among them."""
        _require_ours(module)
        given = dict(self._signature.bind_partial(*args, **kwargs).arguments)
        given |= given.pop(self._rest, {}) if self._rest else {}
        given["past_key_values"] = _cache(module, given)
        now = make_pass(given, len(self._own), random=_random(self._extension, module))
        if now.cache is not None:
            _see_to(now.cache, now, self._extension, self._own)
        CURRENT.set(now)
        return (), {**given, PASS: now} if self._rest else given


def closing(module: nn.Module, args: Any, output: Any) -> None:
    """The hook after it: a pass that is over holds no cache, and is no other pass's."""
    CURRENT.set(None)


def _require_ours(module: Any) -> None:
    """Refuse to go on without positions where somebody has changed the model's attention in between."""
    name = module.config._attn_implementation
    if name != NAME:
        remedy = "remove the extension first, or extend again afterwards"
        raise Conflict("attention implementation", f"left at {NAME} under an extension", name, remedy=remedy)


def _random(extension: Extension, module: nn.Module) -> Any:
    """How tokens are numbered, where training numbers them otherwise than one after the other."""
    return extension.positions if module.training else None


def _cache(module: Any, given: dict[str, Any]) -> Any:
    """The cache that was given, or the one that the model would make for itself further on."""
    cache, use_cache = given.get("past_key_values"), given.get("use_cache")
    wanted = module.config.use_cache if use_cache is None else use_cache
    if cache is None and wanted and not module.training and not states_numbers(given):
        return DynamicCache(config=module.config)
    return cache


def _see_to(cache: Any, now: Pass, extension: Extension, own: Sequence[Attached]) -> None:
    """Ours in the place of a plain fresh cache; no cache that another extension filled, no other padding."""
    mark = getattr(cache, MARK, None)
    if mark != extension and cache.get_seq_length() > 0:
        filled = "by the bare model" if mark is None else f"under {mark.to_json()}"
        raise Conflict("past_key_values", "filled under this extension", filled, remedy="begin with a new cache")
    setattr(cache, MARK, extension)
    begins = _begins(now)
    if begins and is_fresh(cache) and not torch.is_grad_enabled():
        adopt(cache, _sessions(own, begins))
    memories = [layer for layer in cache.layers if isinstance(layer, MemoryLayer)]
    known = memories[0].memory.session.begins if memories else begins
    if now.masked and begins != known:
        rule = f"0 where the cache has padding (rows begin at {known}) and nowhere else"
        remedy = "begin with a new cache, or pass use_cache=False"
        raise InvalidValue("attention_mask", rule, f"rows that begin at {begins}", remedy=remedy)
    for layer in memories:
        layer.expected = True


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
            made[key] = Session(each.extension, each.facts, begins=begins, weights=each.weights)
        found.append(made[key])
    return found
