"""What transformers' masks let a query see, read off the functions that they are made of.

A mask is made of a function of two places. Causal ones and windows are known by their code; whatever else may hide or
show something is unknown, and refused where attention of ours would not follow it.

Legend: b batch, i query, j key.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers.masking_utils import (
    and_masks,
    causal_mask_function,
    or_masks,
    packed_sequence_mask_function,
    remap_positions_for_packed_sequence,
    sdpa_mask,
    sliding_window_overlay,
)

from ropewalk.errors import DoesNotFit

_NONE = torch.zeros(1, 1)
_BOTH, _EITHER = and_masks(causal_mask_function).__code__, or_masks(causal_mask_function).__code__
_WINDOW = sliding_window_overlay(1).__code__
_TEXTS = packed_sequence_mask_function(_NONE).__code__
_RENUMBERED = remap_positions_for_packed_sequence(causal_mask_function, _NONE).__code__
_KEPT = ("batch_size", "q_length", "kv_length", "q_offset", "kv_offset", "use_vmap", "device")


class MaskReach(NamedTuple):
    """What a known mask lets a query see."""

    causal: bool
    window: int | None = None


def sight(function: Any) -> MaskReach | None:
    """Of a mask function; nothing where it is not known."""
    if function is causal_mask_function:
        return MaskReach(True)
    code, inside = getattr(function, "__code__", None), _inside(function)
    if code is _WINDOW:
        return MaskReach(False, inside["sliding_window"])
    if code is _TEXTS:  # which texts there are is read off the position ids by us as well
        return MaskReach(False)
    if code is _RENUMBERED:
        return sight(inside["mask_function"])
    return _both([sight(part) for part in inside["mask_functions"]]) if code is _BOTH else None


def require_causal(mask_function: Callable[..., Any], **given: Any) -> None:
    """Refuse a mask that shows later keys or hides earlier ones, other than by a window.

    A union is asked in every place whether it shows more than its causal part: token types that are all alike do not.
    """
    core = _core(mask_function)
    if _is_causal(core) and (core is mask_function or _same(mask_function, core, given)):
        return
    remedy = "leave token_type_ids and images out, or extend by a static schedule, which keeps the model's attention"
    got = f"another one ({getattr(mask_function, '__qualname__', mask_function)})"
    raise DoesNotFit("attention mask", "causal, with a window or without, under attention of ours", got, remedy=remedy)


def _core(function: Any) -> Any:
    """A mask function without what is united with its causal part."""
    code = getattr(function, "__code__", None)
    if sight(function) is not None or code not in (_BOTH, _EITHER):
        return function
    parts = [_core(part) for part in _inside(function)["mask_functions"]]
    return and_masks(*parts) if code is _BOTH else next((part for part in parts if _is_causal(part)), function)


def _is_causal(function: Any) -> bool:
    seen = sight(function)
    return seen is not None and seen.causal


def _same(one: Any, other: Any, given: dict[str, Any]) -> bool:
    """Whether two mask functions show the same in every place."""
    places = {name: value for name, value in given.items() if name in _KEPT}
    first, second = (sdpa_mask(mask_function=each, allow_is_causal_skip=False, **places) for each in (one, other))
    return first is not None and second is not None and torch.equal(first, second)


def _both(parts: list[MaskReach | None]) -> MaskReach | None:
    known = [part for part in parts if part is not None]
    windows = [part.window for part in known if part.window is not None]
    if len(known) < len(parts):
        return None
    return MaskReach(any(part.causal for part in known), min(windows, default=None))


def _inside(function: Any) -> dict[str, Any]:
    """What a closure holds, by name."""
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    return dict(zip(names, (cell.cell_contents for cell in getattr(function, "__closure__", None) or ()), strict=True))


def own_mask(mask: Tensor | None) -> bool:
    """Whether a module hands attention a mask that it made itself: ours are of two dimensions, the padding."""
    return mask is not None and mask.dim() != 2
