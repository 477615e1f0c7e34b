"""One layer under an extension: what is in force there, and its attention.

Legend: b batch, h query head, g key head, i query, j key, n token, d head dimension.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ropewalk.attention import attend
from ropewalk.attention.layout.shared import sharing
from ropewalk.equation import reference_weights
from ropewalk.errors import DoesNotFit, InvalidValue
from ropewalk.extension import Extension
from ropewalk.facts import MODEL, SINKS, Facts
from ropewalk.frequencies import NoPE
from ropewalk.hf.probe.attention_arguments import SUPPORTED, unsupported_arguments
from ropewalk.hf.probe.checkpoint_schedule import is_stretched, on_own_tables
from ropewalk.hf.probe.rotary import ProbedLayer
from ropewalk.hf.runtime.caches import ExtendedCacheLayer
from ropewalk.hf.runtime.forward_pass import CURRENT, PASS, ForwardPass
from ropewalk.reach import Window
from ropewalk.spec import Weights

NAME = "ropewalk"  # of the attention function, in transformers' registry
PREFIX = "ropewalk_"  # of the parameters that an extension brings to an attention module
_LAYER = "_ropewalk"  # of an attention module: its extended layer


class ExtendedLayer(NamedTuple):
    """An attention module with the extension in force there."""

    depth: int
    probed: ProbedLayer
    extension: Extension
    facts: Facts
    learning: Mapping[str, Weights]  # initial values of what its biases and scales learn
    keeps_window: bool  # it has a window of its own, and keeps it
    left_alone: bool  # for the sake of that: nothing of it is changed
    scaling: float  # what the model multiplies its logits by, with or without what its own schedule makes of that
    temperature: float  # what its own cos and sin are multiplied by, or 1 where its schedule is replaced

    @property
    def factor(self) -> float:
        """What queries are multiplied by, so that dividing by sqrt(d) gives the model's own scaling."""
        whole = self.temperature**2 if self.probed.rotating == self.probed.head_dim else 1.0
        return self.scaling * math.sqrt(self.probed.head_dim) * whole

    @property
    def rotating_factor(self) -> float:
        """What the rotating dimensions of queries are multiplied by besides, where not all rotate."""
        return self.temperature**2 if self.probed.rotating < self.probed.head_dim else 1.0

    @property
    def weights(self) -> Mapping[str, Weights]:
        """What its biases and scales have learned, and the sinks: the module's parameters, as it has them now.

        Sharding puts others in the place of those that were made.
        """
        learned = {
            name: {key: self._learned(parameter_name(name, key), value) for key, value in group.items()}
            for name, group in self.learning.items()
        }
        if self.probed.sinks:
            learned[MODEL] = {SINKS: getattr(self.probed.module, self.probed.sinks)}
        return learned

    def _learned(self, parameter: str, initial: Tensor) -> Tensor:
        present = self.probed.module._parameters.get(parameter)
        return initial if present is None else present.view_as(initial)


# Somebody who wants to know what queries and keys the layers bring, before they turn.
LISTENER: ContextVar[Callable[[ExtendedLayer, Tensor, Tensor], None] | None] = ContextVar("listener", default=None)


def attached(depth: int, layer: ProbedLayer, facts: Facts, extension: Extension, lift_windows: bool) -> ExtendedLayer:
    """What is in force in this layer: what the extension says, and what it leaves open as the model has it.

    A layer with a window of its own never sees a distance it does not know, and is left alone. But where the model's
    own schedule is replaced, a windowed layer that has it loses it too, or half of the model would keep it.
    """
    own = extension.at_layer(depth, facts)
    keeps_window = layer.window is not None and not lift_windows
    left_alone = keeps_window and not (own.instead and is_stretched(layer, facts))
    if layer.window is not None and keeps_window:
        own = Extension(reach=Window(window=layer.window)) if left_alone else _within(layer.window, own)
    schedule = own.theta if layer.rotating else NoPE()
    if not own.instead:
        schedule = on_own_tables(schedule, layer)
    # Numbers drawn at random are for training, and come with the pass.
    own = replace(own, positions=None, frequencies=schedule)
    own.check_against(facts)
    facts = own.ground(facts)
    learning = own.weights(facts, torch.Generator().manual_seed(depth))
    plain = layer.scaling if layer.plain_scaling is None else layer.plain_scaling
    scaling, temperature = (plain, 1.0) if own.instead else (layer.scaling, layer.temperature)
    return ExtendedLayer(depth, layer, own, facts, learning, keeps_window, left_alone, scaling, temperature)


def _within(window: int, own: Extension) -> Extension:
    """What replaces a schedule in a layer that keeps its window: frequencies and the temperature that is theirs."""
    scales = tuple(each for each in own.scales if each.of_frequencies)
    return Extension(frequencies=own.frequencies, reach=Window(window=window), scales=scales, instead=True)


def mark_module(layer: ExtendedLayer) -> ExitStack:
    """Store the layer on its module; closing what is returned takes it off."""
    attributes = layer.probed.module.__dict__
    attributes[_LAYER] = layer
    undo = ExitStack()
    undo.callback(attributes.pop, _LAYER)
    return undo


def layer_of(module: nn.Module) -> ExtendedLayer | None:
    """The layer of an attention module under an extension by our attention; None of any other module."""
    layer: ExtendedLayer | None = module.__dict__.get(_LAYER)
    return layer


def lifted(own: ExtendedLayer) -> bool:
    """Whether the layer has a window of its own that the extension does not keep."""
    return own.probed.window is not None and not own.keeps_window


def type_of(own: ExtendedLayer, kinds: Sequence[str]) -> str:
    """The type of a layer, as its rotary module is told it, or as a config lists it: by the number of the layer among
    all, of which some may be none of attention."""
    place = own.probed.cached
    return own.probed.layer_type or kinds[place.slot if place else own.depth]


def fetched(own: ExtendedLayer) -> bool:
    """Whether what was learned is on disk, and with the module only while that runs."""
    return any(value.device.type == "meta" for group in own.weights.values() for value in group.values())


def learned(own: ExtendedLayer) -> dict[str, nn.Parameter]:
    """The parameters of the layer's biases and scales, by the names under which its module has them, or is to."""
    present = own.probed.module._parameters
    named = {parameter_name(name, key): value for name, group in own.learning.items() for key, value in group.items()}
    # Sharding knows no parameters without dimensions, and parameters of one type only.
    return {name: _kept(present.get(name), value) for name, value in named.items()}


def _kept(parameter: nn.Parameter | None, initial: Tensor) -> nn.Parameter:
    return nn.Parameter(initial.float().reshape(initial.shape or (1,))) if parameter is None else parameter


def parameter_name(method: str, key: str) -> str:
    """What an attention module calls a parameter of an extension."""
    return f"{PREFIX}{method}_{key}"


@torch.compiler.disable  # type: ignore[untyped-decorator]
def attention(
    module: nn.Module,
    q_bhid: Tensor,
    k_bgjd: Tensor,
    v_bgjd: Tensor,
    attention_mask: Any = None,
    dropout: float = 0.0,
    **given: Any,
) -> tuple[Tensor, Tensor | None]:
    """What transformers calls in place of its own: turn, reach and weigh as the layer's extension says."""
    own = layer_of(module)
    now = given.get(PASS) or CURRENT.get()
    if own is None or now is None:
        remedy = "call the model that was extended, and give models configs of their own"
        raise DoesNotFit("attention", "called from a model that was extended", type(module).__name__, remedy=remedy)
    _require_carried(module, attention_mask, unsupported_arguments(given, now.told))
    if dropout:
        raise InvalidValue(
            "attention dropout", "0 under an extension", dropout, remedy="set config.attention_dropout = 0"
        )
    if torch.is_autocast_enabled(v_bgjd.device.type):  # where a norm has widened queries and keys
        q_bhid, k_bgjd = q_bhid.to(v_bgjd.dtype), k_bgjd.to(v_bgjd.dtype)
    q_bhid, k_bgjd = (_rotating_first(x, own.probed) for x in (q_bhid, k_bgjd))
    q_bhid = _scaled(q_bhid, own)
    listener = LISTENER.get()
    if listener is not None:
        listener(own, q_bhid, k_bgjd)
    held, weights = now.held(own.depth), None
    with sharing(now.shared):
        if isinstance(held, ExtendedCacheLayer):
            held.expected = False
            out = held.memory.read(q_bhid, k_bgjd, v_bgjd)
        else:
            out, weights = _attend(own, now, q_bhid, k_bgjd, v_bgjd)
    return out.transpose(1, 2).contiguous(), weights


def _scaled(q_bhid: Tensor, own: ExtendedLayer) -> Tensor:
    """Queries whose products have the model's own scaling and temperature."""
    if own.factor != 1:
        q_bhid = q_bhid * own.factor
    if own.rotating_factor == 1:
        return q_bhid
    turning, still = q_bhid[..., : own.probed.rotating], q_bhid[..., own.probed.rotating :]
    return torch.cat([turning * own.rotating_factor, still], -1)


def _require_carried(module: nn.Module, mask: Any, odd: Sequence[str]) -> None:
    """Refuse what attention here would drop: a mask that a module made itself, keywords that are not known."""
    got = "a mask of its own making" if isinstance(mask, Tensor) and mask.dim() != 2 else ", ".join(odd)
    if got:
        raise DoesNotFit("attention", f"asked for {SUPPORTED} alone", f"{got} from {type(module).__name__}")


def _attend(
    own: ExtendedLayer, now: ForwardPass, q_bhid: Tensor, k_bgjd: Tensor, v_bgjd: Tensor
) -> tuple[Tensor, Tensor | None]:
    """Without a cache, or with one of transformers', which then holds keys as they came; and the weights if wanted."""
    numbers, documents, k_bgjd, v_bgjd = now.seen(own.depth, k_bgjd, v_bgjd)
    given: dict[str, Any] = {"positions_bj": numbers, "documents_bj": documents, "weights": own.weights}
    out = attend(q_bhid, k_bgjd, v_bgjd, own.extension, own.facts, **given)
    if not now.weighing:
        return out, None
    return out, reference_weights(q_bhid, k_bgjd, own.extension, own.facts, **given).to(q_bhid.dtype)


def _rotating_first(x_bhnd: Tensor, layer: ProbedLayer) -> Tensor:
    """Products do not ask for the order of dimensions; here the rotating ones come first, and all turn one way."""
    x_bhnd = x_bhnd.roll(-layer.first, -1) if layer.first else x_bhnd
    return _anticlockwise(x_bhnd, layer) if layer.clockwise else x_bhnd


def _anticlockwise(x_bhnd: Tensor, layer: ProbedLayer) -> Tensor:
    """Each pair the other way round: (a, b) turned towards a is (b, a) turned towards b."""
    turning, still = x_bhnd[..., : layer.rotating], x_bhnd[..., layer.rotating :]
    if layer.interleaved:
        turning = torch.stack([turning[..., 1::2], turning[..., ::2]], -1).flatten(-2)
    else:
        turning = turning.roll(layer.rotating // 2, -1)
    return torch.cat([turning, still], -1)
