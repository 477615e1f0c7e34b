"""The inputs of attention, recorded while a model runs: queries, keys, values, masks and other arguments.

Legend: b batch, h head, n token, d head dimension.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

from torch import Tensor, nn
from transformers.masking_utils import eager_mask

from ropewalk.errors import DoesNotFit
from ropewalk.hf.probe.attention_arguments import unsupported_arguments
from ropewalk.hf.probe.masks import recognize
from ropewalk.scoped import scoped


class CapturedCall(NamedTuple):
    """The inputs of one call of attention."""

    module: nn.Module
    q_bhnd: Tensor
    k_bhnd: Tensor
    v_bhnd: Tensor
    scaling: float
    window: int | None
    unsupported: str  # arguments that the equation does not have; empty: none
    arguments: dict[str, Any]


class CapturedCalls(NamedTuple):
    """The recorded calls, and the masks that were made, each with its mask function."""

    calls: list[CapturedCall]
    masks: list[tuple[Tensor, Any]]


_CAPTURED: ContextVar[CapturedCalls] = ContextVar("captured")


@contextmanager
def recording() -> Iterator[list[CapturedCall]]:
    """The calls of `record` inside the block."""
    with scoped(_CAPTURED, CapturedCalls([], [])) as captured:
        yield captured.calls


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
    window, unsupported = _seen(attention_mask, arguments)
    _CAPTURED.get().calls.append(CapturedCall(module, q_bhnd, k_bhnd, v_bhnd, factor, window, unsupported, arguments))
    return q_bhnd.new_zeros(len(q_bhnd), q_bhnd.shape[2], q_bhnd.shape[1], v_bhnd.shape[-1]), None


def masked(*, mask_function: Any, **kwargs: Any) -> Tensor | None:
    """The mask of eager attention; its mask function is recorded."""
    mask: Tensor | None = eager_mask(mask_function=mask_function, **kwargs)
    if mask is not None:
        _CAPTURED.get().masks.append((mask, mask_function))
    return mask


def _seen(mask: Tensor | None, arguments: dict[str, Any]) -> tuple[int | None, str]:
    """The window of a layer, and its arguments that the equation does not have."""
    odd = unsupported_arguments(arguments)
    if odd or mask is None:
        return arguments.get(
            "sliding_window"
        ), f"{', '.join(odd)}, which Ropewalk's attention does not support" if odd else ""
    storage = mask.untyped_storage().data_ptr()
    made_of = (
        candidate for mask_made, candidate in _CAPTURED.get().masks if mask_made.untyped_storage().data_ptr() == storage
    )
    function = next(made_of, None)
    if function is None:
        return arguments.get("sliding_window"), "a mask that the module makes itself"
    seen = recognize(function)
    return (seen.window, "") if seen and seen.causal else (None, "a mask that is neither causal nor a window")


def require_finite(model: nn.Module, calls: Sequence[CapturedCall]) -> None:
    """Refuse NaN and infinite weights, with the name of the first."""
    parts = (part for call in calls for part in (call.q_bhnd, call.k_bhnd, call.v_bhnd))
    if not all(bool(part.isfinite().all()) for part in parts):
        raise DoesNotFit.because("model", f"queries, keys or values are not finite: {not_finite(model)}")


def not_finite(model: nn.Module) -> str:
    """The first parameter that holds NaN or infinity, and how many."""
    for name, value in model.named_parameters():
        bad = 0 if value.device.type == "meta" else int((~value.isfinite()).sum())
        if bad:
            return f"{bad} of {value.numel()} weights of {name} that are NaN or infinite"
    return "NaN or infinity, though its weights are finite"
