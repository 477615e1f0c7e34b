"""What transformers' masks let a query see, read from their mask functions.

A mask function is a function of two positions. Causal ones, windows and chunks are recognized by their code; any other
is unknown, and refused where our attention would not follow it.

Legend: b batch, i query, j key.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import masking_utils
from transformers.masking_utils import (
    and_masks,
    causal_mask_function,
    chunked_overlay,
    or_masks,
    packed_sequence_mask_function,
    sdpa_mask,
    sliding_window_overlay,
)

from ropewalk.errors import DoesNotFit

_NONE = torch.zeros(1, 1)
_BOTH, _EITHER = and_masks(causal_mask_function).__code__, or_masks(causal_mask_function).__code__
_WINDOW = sliding_window_overlay(1).__code__
_CHUNKS = chunked_overlay(1, _NONE).__code__
_TEXTS = packed_sequence_mask_function(_NONE).__code__
# Packed texts are renumbered from transformers 5.20 on; before, they are only kept apart.
_RENUMBER = getattr(masking_utils, "remap_positions_for_packed_sequence", None)
_RENUMBERED = _RENUMBER(causal_mask_function, _NONE).__code__ if _RENUMBER else None
_KEPT = ("batch_size", "q_length", "kv_length", "q_offset", "kv_offset", "use_vmap", "device")


class MaskReach(NamedTuple):
    """What a recognized mask lets a query see."""

    causal: bool
    window: int | None = None
    chunk: int | None = None


def recognize(function: Any) -> MaskReach | None:
    """The reach of a mask function; None where it is not recognized."""
    if function is causal_mask_function:
        return MaskReach(True)
    code, inside = getattr(function, "__code__", None), _inside(function)
    if code is _WINDOW:
        return MaskReach(False, inside["sliding_window"])
    if code is _CHUNKS:  # counted from the first token after padding, as our positions are
        return MaskReach(False, chunk=inside["chunk_size"])
    if code is _TEXTS:  # we read packed texts from the position ids too
        return MaskReach(False)
    if code is not None and code is _RENUMBERED:
        return recognize(inside["mask_function"])
    return _combine([recognize(part) for part in inside["mask_functions"]]) if code is _BOTH else None


def reach_of(mask_function: Any, kwargs: dict[str, Any]) -> MaskReach | None:
    """The reach of a causal mask; None where it shows or hides anything else at these sizes."""
    core = _core(mask_function)
    same = _is_causal(core) and (core is mask_function or _same(mask_function, core, kwargs))
    return recognize(core) if same else None


def last_seen(mask_function: Callable[..., Any], **kwargs: Any) -> Tensor | None:
    """The last key that each query sees, [batch, queries], if that may be later than its own; None if it is not.

    A union is compared with its causal part at every position: token types that are all equal add nothing. The tokens
    of an image may see each other, up to the last of them. Any other mask is refused.
    """
    core = _core(mask_function)
    if _is_causal(core):
        if core is mask_function:
            return None
        last_bi = _last(mask_function, core, kwargs)
        if last_bi is not None:
            return last_bi if (last_bi != _slots(last_bi, kwargs)).any() else None
    remedy = "leave token_type_ids and images out, or use a static schedule, which keeps the model's attention"
    got = f"another mask ({getattr(mask_function, '__qualname__', mask_function)})"
    raise DoesNotFit(
        "attention mask", "causal, with or without a window, under Ropewalk's attention", got, remedy=remedy
    )


def _last(whole: Any, core: Any, kwargs: dict[str, Any]) -> Tensor | None:
    """The last key that each query sees: its own, or a later one; None unless a mask shows beyond its causal part
    exactly the keys in between."""
    shown, causal = (_at_every_position(function, kwargs) for function in (whole, core))
    if shown is None or causal is None or (causal & ~shown).any():
        return None
    later_bij = (shown & ~causal)[:, 0]
    keys = torch.arange(later_bij.shape[2], device=later_bij.device)
    slots = _slots(later_bij, kwargs)
    last_bi = torch.maximum(torch.where(later_bij, keys, -1).amax(-1), slots)
    return last_bi if torch.equal(later_bij.sum(-1), last_bi - slots) else None


def _slots(by_query: Tensor, kwargs: dict[str, Any]) -> Tensor:
    """Each query's own key."""
    first = int(kwargs["q_offset"] - kwargs["kv_offset"])
    return torch.arange(first, first + by_query.shape[1], device=by_query.device)


def _core(function: Any) -> Any:
    """The causal part of a union of mask functions, or the function itself."""
    code = getattr(function, "__code__", None)
    if recognize(function) is not None or code not in (_BOTH, _EITHER):
        return function
    parts = [_core(part) for part in _inside(function)["mask_functions"]]
    return and_masks(*parts) if code is _BOTH else next((part for part in parts if _is_causal(part)), function)


def _is_causal(function: Any) -> bool:
    seen = recognize(function)
    return seen is not None and seen.causal


def _same(one: Any, other: Any, kwargs: dict[str, Any]) -> bool:
    """Whether two mask functions are equal at every position."""
    first, second = (_at_every_position(mask, kwargs) for mask in (one, other))
    return first is not None and second is not None and torch.equal(first, second)


def _at_every_position(function: Any, kwargs: dict[str, Any]) -> Tensor | None:
    """Whether each query sees each key, [batch, 1, queries, keys], without regard to padding."""
    places = {name: value for name, value in kwargs.items() if name in _KEPT}
    shown: Tensor | None = sdpa_mask(mask_function=function, allow_is_causal_skip=False, **places)
    return shown


def _combine(parts: list[MaskReach | None]) -> MaskReach | None:
    known = [part for part in parts if part is not None]
    windows, chunks = ({getattr(part, name) for part in known} - {None} for name in ("window", "chunk"))
    if len(known) < len(parts) or len(chunks) > 1 or (windows and chunks):
        return None
    return MaskReach(any(part.causal for part in known), min(windows, default=None), min(chunks, default=None))


def _inside(function: Any) -> dict[str, Any]:
    """The variables of a closure, by name."""
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    return dict(zip(names, (cell.cell_contents for cell in getattr(function, "__closure__", None) or ()), strict=True))
