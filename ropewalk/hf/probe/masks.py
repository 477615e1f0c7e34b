"""What transformers' masks let a query see, read from their mask functions.

A mask function is a function of two positions. Causal ones and windows are recognized by their code; any other is
unknown, and refused where our attention would not follow it.

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
    or_masks,
    packed_sequence_mask_function,
    sdpa_mask,
    sliding_window_overlay,
)

from ropewalk.errors import DoesNotFit

_NONE = torch.zeros(1, 1)
_BOTH, _EITHER = and_masks(causal_mask_function).__code__, or_masks(causal_mask_function).__code__
_WINDOW = sliding_window_overlay(1).__code__
_TEXTS = packed_sequence_mask_function(_NONE).__code__
# Packed texts are renumbered from transformers 5.20 on; before, they are only kept apart.
_RENUMBER = getattr(masking_utils, "remap_positions_for_packed_sequence", None)
_RENUMBERED = _RENUMBER(causal_mask_function, _NONE).__code__ if _RENUMBER else None
_KEPT = ("batch_size", "q_length", "kv_length", "q_offset", "kv_offset", "use_vmap", "device")


class MaskReach(NamedTuple):
    """What a recognized mask lets a query see."""

    causal: bool
    window: int | None = None


def recognize(function: Any) -> MaskReach | None:
    """The reach of a mask function; None where it is not recognized."""
    if function is causal_mask_function:
        return MaskReach(True)
    code, inside = getattr(function, "__code__", None), _inside(function)
    if code is _WINDOW:
        return MaskReach(False, inside["sliding_window"])
    if code is _TEXTS:  # we read packed texts from the position ids too
        return MaskReach(False)
    if code is not None and code is _RENUMBERED:
        return recognize(inside["mask_function"])
    return _both([recognize(part) for part in inside["mask_functions"]]) if code is _BOTH else None


def require_causal(mask_function: Callable[..., Any], **kwargs: Any) -> None:
    """Refuse a mask that shows later keys or hides earlier ones, other than by a window.

    A union is compared with its causal part at every position: token types that are all equal add nothing.
    """
    core = _core(mask_function)
    if _is_causal(core) and (core is mask_function or _same(mask_function, core, kwargs)):
        return
    remedy = "leave token_type_ids and images out, or use a static schedule, which keeps the model's attention"
    got = f"another mask ({getattr(mask_function, '__qualname__', mask_function)})"
    raise DoesNotFit(
        "attention mask", "causal, with or without a window, under Ropewalk's attention", got, remedy=remedy
    )


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
    places = {name: value for name, value in kwargs.items() if name in _KEPT}
    first, second = (sdpa_mask(mask_function=mask, allow_is_causal_skip=False, **places) for mask in (one, other))
    return first is not None and second is not None and torch.equal(first, second)


def _both(parts: list[MaskReach | None]) -> MaskReach | None:
    known = [part for part in parts if part is not None]
    windows = [part.window for part in known if part.window is not None]
    if len(known) < len(parts):
        return None
    return MaskReach(any(part.causal for part in known), min(windows, default=None))


def _inside(function: Any) -> dict[str, Any]:
    """The variables of a closure, by name."""
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    return dict(zip(names, (cell.cell_contents for cell in getattr(function, "__closure__", None) or ()), strict=True))


def own_mask(mask: Tensor | None) -> bool:
    """Whether a module passes attention a mask that it made itself: ours have two dimensions, the padding."""
    return mask is not None and mask.dim() != 2
