"""What one pass of a model shows: its attention's arguments, its rotation's output, which modules it calls."""

from __future__ import annotations

import inspect
import math
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.masking_utils import eager_mask

from ropewalk.attention.scoped import scoped
from ropewalk.errors import Conflict, DoesNotFit
from ropewalk.hf.probe.masks import MaskReach, reach_of

# What several threads do with one model: one at a time changes it or looks into it, and no forward is caught halfway.
#
# To look into a model is to run it with other functions for a moment, which a forward of another thread would meet.


CHANGES = threading.RLock()  # of models, by one thread at a time: attention functions are registered for all of them
FORWARD_TIMEOUT = 600.0  # seconds that the end of another thread's forward is waited for
_CLOSED = set[nn.Module]()  # to other threads


@contextmanager
def alone_with(model: nn.Module) -> Iterator[None]:
    """Let no other thread change the model or look into it, and refuse its forwards."""
    with CHANGES, ExitStack() as undo:
        if model not in _CLOSED:
            _CLOSED.add(model)
            undo.callback(_CLOSED.discard, model)
            mine = threading.get_ident()

            def refuse(*_: Any) -> None:
                if not torch.compiler.is_compiling() and threading.get_ident() != mine:
                    raise interrupted()

            for module in model.modules():
                undo.callback(module.register_forward_pre_hook(refuse).remove)
        yield


def interrupted() -> Conflict:
    """The refusal of a forward that meets a model in the middle of a change."""
    sentence = "another thread extends this model, looks into it, or takes its extension off"
    return Conflict.because("model", sentence, remedy="run the model when that has ended")


class Forwards:
    """The forwards that run under an extension, by their threads."""

    def __init__(self) -> None:
        self._changed, self._running, self._open = threading.Condition(), set[int](), True

    def begin(self, *_: Any) -> None:
        """The hook before a forward: refuse it where the extension is being taken off."""
        if torch.compiler.is_compiling():
            return
        with self._changed:
            if not self._open:
                raise interrupted()
            self._running.add(threading.get_ident())

    def end(self, *_: Any) -> None:
        """The hook after a forward, also after one that failed."""
        if not torch.compiler.is_compiling():
            with self._changed:
                self._running.discard(threading.get_ident())
                self._changed.notify_all()

    def close(self) -> None:
        """Let none begin any more, and wait for those of other threads."""
        with self._changed:
            self._open = False
            if not self._changed.wait_for(lambda: self._running <= {threading.get_ident()}, FORWARD_TIMEOUT):
                self._open = True
                remedy = "remove the extension when that has ended"
                raise Conflict.because("model", "another thread computes with this model", remedy=remedy)


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
#
# Legend: b batch, n token, d rotating dimension or pair.


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


# The part of a model that reads a text: where a forward pass of its attention layers begins.


READS = {"inputs_embeds", "past_key_values"}  # the arguments of a forward that reads a text


def called_base(host: PreTrainedModel, attending: Collection[nn.Module]) -> PreTrainedModel:
    """The innermost model with all attention modules.

    A model that sees images calls it with positions that `host` itself does not know, and some models bypass
    `base_model`.
    """
    inside = [part for part in host.modules() if isinstance(part, PreTrainedModel) and _reads(part)]
    return [part for part in inside if set(attending) <= set(part.modules())][-1]


def _reads(part: PreTrainedModel) -> bool:
    return inspect.signature(part.forward).parameters.keys() >= READS


# The inputs of attention, recorded while a model runs: queries, keys, values, masks and other arguments.
#
# Legend: b batch, h head, n token, d head dimension.


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
