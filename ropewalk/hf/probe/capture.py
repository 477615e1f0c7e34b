"""What layers hand to attention, taken down while a model is asked: queries, keys, values, masks and whatever else.

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
from ropewalk.hf.probe.masks import sight
from ropewalk.scoped import scoped


class CapturedCall(NamedTuple):
    """What a layer handed to attention."""

    module: nn.Module
    q_bhnd: Tensor
    k_bhnd: Tensor
    v_bhnd: Tensor
    scaling: float
    window: int | None
    unsupported: str  # what else it asks of attention than the equation has
    given: dict[str, Any]


class CapturedCalls(NamedTuple):
    """What was heard, and the masks that were made, each with the function that it is made of."""

    heard: list[CapturedCall]
    masks: list[tuple[Tensor, Any]]


_NOTES: ContextVar[CapturedCalls] = ContextVar("notes")


@contextmanager
def listening() -> Iterator[list[CapturedCall]]:
    """What layers hand to `listen` inside."""
    with scoped(_NOTES, CapturedCalls([], [])) as captured:
        yield captured.heard


def listen(
    module: nn.Module,
    q_bhnd: Tensor,
    k_bhnd: Tensor,
    v_bhnd: Tensor,
    attention_mask: Tensor | None = None,
    scaling: float | None = None,
    **given: Any,
) -> tuple[Tensor, None]:
    """Take down what attention is asked, and answer nothing."""
    own = 1 / math.sqrt(q_bhnd.shape[-1]) if scaling is None else float(scaling)
    window, more = _seen(attention_mask, given)
    _NOTES.get().heard.append(CapturedCall(module, q_bhnd, k_bhnd, v_bhnd, own, window, more, given))
    return q_bhnd.new_zeros(len(q_bhnd), q_bhnd.shape[2], q_bhnd.shape[1], v_bhnd.shape[-1]), None


def masked(*, mask_function: Any, **given: Any) -> Tensor | None:
    """A mask as eager attention has it, and a note of what it was made of."""
    mask: Tensor | None = eager_mask(mask_function=mask_function, **given)
    if mask is not None:
        _NOTES.get().masks.append((mask, mask_function))
    return mask


def _seen(mask: Tensor | None, given: dict[str, Any]) -> tuple[int | None, str]:
    """The window of a layer, and what else it asks of attention than the equation has."""
    odd = unsupported_arguments(given)
    if odd or mask is None:
        return given.get("sliding_window"), f"{', '.join(odd)}, which attention here does not know" if odd else ""
    storage = mask.untyped_storage().data_ptr()
    made_of = (own for made, own in _NOTES.get().masks if made.untyped_storage().data_ptr() == storage)
    function = next(made_of, None)
    if function is None:
        return given.get("sliding_window"), "a mask that the module makes itself"
    seen = sight(function)
    return (seen.window, "") if seen and seen.causal else (None, "a mask that is neither causal nor a window")


def require_finite(model: nn.Module, heard: Sequence[CapturedCall]) -> None:
    """Refuse weights that are no numbers, by the name of the first."""
    parts = (part for each in heard for part in (each.q_bhnd, each.k_bhnd, each.v_bhnd))
    if not all(bool(part.isfinite().all()) for part in parts):
        raise DoesNotFit("model", "one whose queries, keys and values are finite", not_finite(model))


def not_finite(model: nn.Module) -> str:
    """The first parameter that holds NaN or infinity, and how many."""
    for name, value in model.named_parameters():
        bad = 0 if value.device.type == "meta" else int((~value.isfinite()).sum())
        if bad:
            return f"{bad} of {value.numel()} weights of {name} that are NaN or infinite"
    return "NaN or infinity, though its weights are finite"
