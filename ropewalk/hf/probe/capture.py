"""The inputs of attention, recorded while a model runs: queries, keys, values, masks and other arguments.

Legend: b batch, h head, n token, d head dimension.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

from torch import Tensor, nn
from transformers.masking_utils import eager_mask

from ropewalk.attention.scoped import scoped
from ropewalk.errors import DoesNotFit
from ropewalk.hf.probe.attention_arguments import CHOSEN, MASK, unsupported_arguments
from ropewalk.hf.probe.masks import MaskReach, reach_of
from ropewalk.hf.probe.threads import interrupted

OUTSIDE = "a mask that is made outside the layer, and is not causal"


class CapturedCall(NamedTuple):
    """The inputs of one call of attention."""

    module: nn.Module
    q_bhnd: Tensor
    k_bhnd: Tensor
    v_bhnd: Tensor
    scaling: float
    seen: MaskReach
    unsupported: str  # arguments that the equation does not have; empty: none
    arguments: dict[str, Any]
    own_mask: bool = False  # whether the module made a mask of its own, or chose keys


class CapturedCalls(NamedTuple):
    """The recorded calls, and the masks that were made, each with what it shows; None where that is unknown."""

    calls: list[CapturedCall]
    masks: list[tuple[Tensor, MaskReach | None]]


_CAPTURED: ContextVar[CapturedCalls | None] = ContextVar("captured", default=None)


@contextmanager
def recording() -> Iterator[list[CapturedCall]]:
    """The calls of `record` inside the block."""
    captured = CapturedCalls([], [])
    with scoped(_CAPTURED, captured):
        yield captured.calls


def _recorded() -> CapturedCalls:
    """What is recorded in this thread; a forward of another one may come into the middle of it."""
    captured = _CAPTURED.get()
    if captured is None:
        raise interrupted()
    return captured


def record(
    module: nn.Module,
    q_bhnd: Tensor,
    k_bhnd: Tensor,
    v_bhnd: Tensor,
    attention_mask: Tensor | None = None,
    scaling: float | None = None,
    **arguments: Any,
) -> tuple[Tensor, None]:
    """An attention function that records its inputs and returns zeros."""
    factor = 1 / math.sqrt(q_bhnd.shape[-1]) if scaling is None else float(scaling)
    seen, unsupported, masks = _read_mask(attention_mask, arguments)
    _recorded().calls.append(CapturedCall(module, q_bhnd, k_bhnd, v_bhnd, factor, seen, unsupported, arguments, masks))
    return q_bhnd.new_zeros(len(q_bhnd), q_bhnd.shape[2], q_bhnd.shape[1], v_bhnd.shape[-1]), None


def recorded_mask(*, mask_function: Any, **kwargs: Any) -> Tensor | None:
    """The mask of eager attention; what it shows is recorded."""
    mask: Tensor | None = eager_mask(mask_function=mask_function, **kwargs)
    if mask is not None:
        _recorded().masks.append((mask, reach_of(mask_function, kwargs)))
    return mask


@contextmanager
def watching_masks(calls: Sequence[CapturedCall]) -> Iterator[dict[nn.Module, MaskReach | None]]:
    """What the mask shows that each module with its own is called with; None where that is no causal one of
    transformers'."""
    shown: dict[nn.Module, MaskReach | None] = {}
    modules = {call.module for call in calls if call.own_mask}

    def watch(module: nn.Module, _: Any, kwargs: dict[str, Any]) -> None:
        made, seen = _read_made_mask(kwargs.get(MASK))
        shown[module] = seen if made else None

    hooks = [module.register_forward_pre_hook(watch, with_kwargs=True) for module in modules]
    try:
        yield shown
    finally:
        for hook in hooks:
            hook.remove()


def with_shown(calls: Sequence[CapturedCall], shown: Mapping[nn.Module, MaskReach | None]) -> list[CapturedCall]:
    """The calls with what the mask shows from which a module makes its own; unsupported where that is unknown."""
    return [_add_shown(call, shown[call.module]) if call.own_mask else call for call in calls]


def _add_shown(call: CapturedCall, seen: MaskReach | None) -> CapturedCall:
    return call._replace(own_mask=False, unsupported=OUTSIDE) if seen is None else call._replace(seen=seen)


def _read_mask(mask: Tensor | None, arguments: dict[str, Any]) -> tuple[MaskReach, str, bool]:
    """What a layer's mask shows, its arguments that the equation does not have, and whether it has its own mask."""
    odd, stated = unsupported_arguments(arguments), MaskReach(True, arguments.get("sliding_window"))
    if odd and odd != [CHOSEN]:
        return stated, f"{', '.join(odd)}, which Ropewalk's attention does not support", False
    if odd or mask is None:
        return stated, "", bool(odd)
    made, seen = _read_made_mask(mask)
    if made and seen is None:
        return MaskReach(True), "a mask that is neither causal nor a window", False
    return (seen or stated), "", not made


def _read_made_mask(mask: Tensor | None) -> tuple[bool, MaskReach | None]:
    """Whether transformers made a mask, and what it shows."""
    for made, seen in _recorded().masks:
        if mask is not None and made.untyped_storage().data_ptr() == mask.untyped_storage().data_ptr():
            return True, seen
    return False, None


def require_finite(model: nn.Module, calls: Sequence[CapturedCall]) -> None:
    """Refuse NaN and infinite weights, with the name of the first."""
    parts = (part for call in calls for part in (call.q_bhnd, call.k_bhnd, call.v_bhnd))
    if not all(bool(part.isfinite().all()) for part in parts):
        raise DoesNotFit.because("model", f"queries, keys or values are not finite: {why_not_finite(model)}")


def why_not_finite(model: nn.Module) -> str:
    """The first parameter that holds NaN or infinity, and how many."""
    for name, value in model.named_parameters():
        bad = 0 if value.device.type == "meta" else int((~value.isfinite()).sum())
        if bad:
            return f"{bad} of {value.numel()} weights of {name} that are NaN or infinite"
    return "NaN or infinity, though its weights are finite"
