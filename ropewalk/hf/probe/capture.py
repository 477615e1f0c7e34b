"""What one pass of a model shows: the arguments of its attention with what masks let through, and its rotation.

A mask function of transformers is a function of two positions. Causal ones, windows and chunks are recognized by their
code; any other is unknown, and refused where our attention would not follow it.

Legend: b batch, h head, i query, j key, n token, d head dimension.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import masking_utils
from transformers.masking_utils import (
    and_masks,
    causal_mask_function,
    chunked_overlay,
    eager_mask,
    or_masks,
    packed_sequence_mask_function,
    sdpa_mask,
    sliding_window_overlay,
)

from ropewalk.attention.scoped import scoped
from ropewalk.errors import DoesNotFit
from ropewalk.hf.probe.host import interrupted, why_not_finite

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


# The arguments of attention besides queries, keys and values: which we support, and which would be ignored.


# Supported by our attention: windows and masks are known beforehand, caps and sinks are facts of the model.
KNOWN = {"scaling", "dropout", "sliding_window", "softcap", "s_aux"}
SUPPORTED = "a causal mask, a window, a cap and sinks"
OWN_MASK = "makes a mask of its own, or chooses its keys"  # a layer, in refusals
MASK = "attention_mask"  # the argument of an attention module
# The keys that a module has chosen for every query, [batch, queries, chosen]: a mask of its own.
CHOSEN = "indices"
# Without new information for attention.
IDLE = {"position_ids", "cache_position", "logits_to_keep", "ropewalk_pass"}


def unsupported_arguments(kwargs: Mapping[str, Any], expected: Collection[str] = ()) -> list[str]:
    """The names of arguments that are neither supported, nor idle, nor among `expected`.

    Flags and words carry no request, except is_causal=False.
    """
    odd = [name for name, value in kwargs.items() if not _is_flag(value) and name not in KNOWN | IDLE]
    odd += ["is_causal=False"] if kwargs.get("is_causal") is False else []
    return [name for name in odd if name not in expected]


def _is_flag(value: Any) -> bool:
    return value is None or isinstance(value, bool | str)


# What a rotary module returns: cos and sin, or one complex number for each pair.


UNIT_RTOL = 2e-2  # of cos^2 + sin^2: the error of bfloat16
RotaryOutput = tuple[Tensor, Tensor] | Tensor


def is_rotation(output: Any) -> bool:
    """Whether a module returned a rotation."""
    if isinstance(output, Tensor):
        return output.is_complex()
    return isinstance(output, tuple) and len(output) == 2 and not any(part.is_complex() for part in output)


def is_rotary_output(output: Any) -> bool:
    """Whether an output of any module is a rotation by its numbers: cos and sin of one size, complex ones alike."""
    parts = (output.real, output.imag) if isinstance(output, Tensor) and output.is_complex() else output
    if not isinstance(parts, tuple) or len(parts) != 2 or not all(isinstance(part, Tensor) for part in parts):
        return False
    cos, sin = parts
    if cos.shape != sin.shape or cos.dim() < 2 or not (cos.is_floating_point() and sin.is_floating_point()):
        return False
    size = (cos.float().square() + sin.float().square()).flatten()
    return bool(sin.any()) and bool(torch.isclose(size, size[:1], rtol=UNIT_RTOL).all())


def fill_output(output: RotaryOutput, cos: float, sin: float, dtype: torch.dtype | None = None) -> RotaryOutput:
    """The same cos and sin for every token and pair; `dtype` is that of real numbers."""
    if isinstance(output, Tensor):
        return torch.full_like(output, complex(cos, sin))
    return torch.full_like(output[0], cos, dtype=dtype), torch.full_like(output[1], sin, dtype=dtype)


def mark_output(output: RotaryOutput, turned: RotaryOutput, mark: float) -> RotaryOutput:
    """No rotation, and `mark` as the sine of what `turned` rotates."""
    sin = cos_and_sin(turned)[1]
    sin = torch.where(sin != 0, mark, 0.0).to(sin.dtype)
    if isinstance(output, Tensor):
        return torch.complex(torch.ones_like(sin), sin).to(output.dtype)
    return torch.ones_like(output[0]), sin.to(output[1].dtype)


def cos_and_sin(output: RotaryOutput) -> tuple[Tensor, Tensor]:
    """The cos and sin of an output."""
    return (output.real, output.imag) if isinstance(output, Tensor) else output


# The inputs of attention, recorded while a model runs: queries, keys, values, masks and other arguments.


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
