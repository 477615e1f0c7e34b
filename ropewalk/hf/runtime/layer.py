"""An extended layer, and the attention function that transformers calls for it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from ropewalk.attention import attend
from ropewalk.attention.layout.sequences import share_results
from ropewalk.equation import reference_weights
from ropewalk.errors import DoesNotFit, InvalidValue
from ropewalk.extension.extension import Extension
from ropewalk.extension.inputs import Tokens
from ropewalk.extension.static import freeze
from ropewalk.hf.probe.capture import CHOSEN, SUPPORTED, unsupported_arguments
from ropewalk.hf.probe.facts import apply_to_own_tables, is_stretched
from ropewalk.hf.probe.probed_layer import ProbedLayer
from ropewalk.hf.probe.rotation import norm_weight
from ropewalk.hf.runtime.caches import Basis, ExtendedCacheLayer
from ropewalk.hf.runtime.forward_pass import CURRENT, PASS, ForwardPass, last_seen_of, last_seen_positions
from ropewalk.hf.runtime.own_masks import model_mask
from ropewalk.methods.facts import AFTER_ROTATION, MODEL, SINKS, Facts
from ropewalk.methods.frequencies import NoPE
from ropewalk.methods.reach import Reach
from ropewalk.methods.scales import Scale
from ropewalk.methods.spec import Weights

# One layer under an extension: what is in force in it, and its attention.
#
# Legend: b batch, h query head, g key head, i query, j key, n token, d head dimension.


NAME = "ropewalk"  # of our attention function in transformers' registry
PREFIX = "ropewalk_"  # of the parameters that an extension adds to an attention module
_LAYER = "_ropewalk"  # of an attention module: its extended layer


class ExtendedLayer(NamedTuple):
    """An attention module with the extension in force in it."""

    depth: int
    probed: ProbedLayer
    extension: Extension
    facts: Facts
    learning: Mapping[str, Weights]  # initial values of the parameters of its biases and scales
    keeps_window: bool  # whether it has a window, or chunks, and keeps them
    left_alone: bool  # whether it is unchanged because it keeps them
    scaling: float  # the model's factor of its logits; without its own schedule where that is replaced
    temperature: float  # the factor of the model's cos and sin; 1 where its own schedule is replaced

    @property
    def factor(self) -> float:
        """The factor of queries that turns the division by sqrt(d) into the model's own scaling."""
        whole = self.temperature**2 if self.probed.rotating == self.probed.head_dim else 1.0
        return self.scaling * math.sqrt(self.probed.head_dim) * whole

    @property
    def rotating_factor(self) -> float:
        """One more factor of the rotating dimensions of queries, where not all rotate."""
        return self.temperature**2 if self.probed.rotating < self.probed.head_dim else 1.0

    @property
    def weights(self) -> Mapping[str, Weights]:
        """The learned numbers of its biases and scales, and its sinks: the parameters that the module has now.

        Sharding replaces the parameters that were registered.
        """
        learned = {
            name: {key: self._learned(parameter_name(name, key), value) for key, value in group.items()}
            for name, group in self.learning.items()
        }
        of_model = {}
        if self.probed.sinks:
            of_model[SINKS] = getattr(self.probed.module, self.probed.sinks)
        if self.facts.weighted:
            q, k = (norm_weight(norm, self.probed.head_dim) for norm in self.probed.norms)
            of_model[AFTER_ROTATION] = put_rotating_first(q * k, self.probed)
        return {**learned, MODEL: of_model} if of_model else learned

    def _learned(self, parameter: str, initial: Tensor) -> Tensor:
        present = self.probed.module._parameters.get(parameter)
        return initial if present is None else present.view_as(initial)


# Called with the queries and keys of every layer, before rotation, and with the mask that the layer makes itself.
Listener = Callable[[ExtendedLayer, Tensor, Tensor, Tensor | None], None]
LISTENER: ContextVar[Listener | None] = ContextVar("listener", default=None)


class HeadMixture(NamedTuple):
    """Another extension of a layer, and the share of its output that each query head takes from its first one."""

    other: Extension
    share_h: Tensor


# Of layers by their depth: how `train retrieval_heads` learns which heads need to see far.
MIXTURES: ContextVar[Mapping[int, HeadMixture]] = ContextVar("mixtures", default={})  # noqa: B039 (never changed)


def attach_layer(
    depth: int, layer: ProbedLayer, facts: Facts, extension: Extension, lift_windows: bool
) -> ExtendedLayer:
    """The layer with what is in force in it: the extension, and the model's own behaviour in empty slots.

    A windowed layer never sees an unfamiliar distance, and is unchanged. But where the checkpoint's own schedule is
    replaced, it is replaced in windowed layers too, or half of the model would keep it.
    """
    local = extension.at_layer(depth, facts)
    keeps_window = layer.limit is not None and not lift_windows
    left_alone = keeps_window and not (local.replaces_scaling and is_stretched(layer, facts))
    if keeps_window:
        local = Extension(reach=layer.reach) if left_alone else _replaced_part(layer.reach, local)
    schedule = local.frequencies_or_rope if layer.rotating else NoPE()
    if not local.replaces_scaling:
        schedule = apply_to_own_tables(schedule, layer)
    # Random positions are for training, and come with each forward pass.
    local = replace(local, positions=None, frequencies=schedule, scales=_felt_scales(local, layer))
    local = replace(local, heads=_felt_heads(local, layer))
    if layer.own_mask and local.writing != local:
        sentence = f"layer type {type(layer.module).__name__} makes one mask for tokens that are read and written alike"
        raise DoesNotFit.because("reach", sentence, remedy="use a reach that does not tell them apart, such as window")
    local.check_against(facts)
    facts = local.builds_on(facts)
    learning = local.weights(facts, torch.Generator().manual_seed(depth))
    plain = layer.scaling if layer.plain_scaling is None else layer.plain_scaling
    scaling, temperature = (plain, 1.0) if local.replaces_scaling else (layer.scaling, layer.temperature)
    return ExtendedLayer(depth, layer, local, facts, learning, keeps_window, left_alone, scaling, temperature)


def _replaced_part(reach: Reach | None, extension: Extension) -> Extension:
    """The part of an extension that replaces the schedule of a windowed layer: frequencies with their temperature."""
    scales = tuple(spec for spec in extension.scales if spec.of_frequencies)
    return Extension(frequencies=extension.frequencies, reach=reach, scales=scales, replaces_scaling=True)


def freeze_layer(layer: ExtendedLayer, length: int) -> ExtendedLayer:
    """The layer with its dynamic schedule made static for texts of one length."""
    return layer._replace(extension=freeze(layer.extension, layer.facts, length))


def _felt_heads(extension: Extension, layer: ProbedLayer) -> dict[int, Extension]:
    """What differs in key heads, on the table of this layer; without schedules where the layer does not rotate."""
    if extension.heads and layer.own_mask:
        sentence = f"layer type {type(layer.module).__name__} makes a mask of its own for all heads together"
        raise DoesNotFit.because("heads", sentence, remedy="leave heads out of such layers")
    heads = {}
    for head, override in extension.head_items:
        schedule = override.frequencies if layer.rotating else None
        if schedule is not None and not extension.replaces_scaling:
            schedule = apply_to_own_tables(schedule, layer)
        heads[head] = replace(override, frequencies=schedule)
    return heads


def _felt_scales(extension: Extension, layer: ProbedLayer) -> tuple[Scale, ...]:
    """The scales without those of the rotation where the layer does not rotate, or where a norm undoes them."""
    rest = tuple(spec for spec in extension.scales if not spec.of_rotation)
    if len(rest) < len(extension.scales) and layer.norm_follows and layer.rotating < layer.head_dim:
        sentence = "a norm after the rotation mixes the dimensions that rotate with those that do not"
        raise DoesNotFit.because("scales", sentence, remedy="say over=head, or leave it out")
    return extension.scales if layer.rotating and not layer.norm_follows else rest


def mark_module(layer: ExtendedLayer) -> ExitStack:
    """Store the layer on its module; closing what is returned takes it off."""
    attributes = layer.probed.module.__dict__
    attributes[_LAYER] = layer
    undo = ExitStack()
    undo.callback(attributes.pop, _LAYER)
    return undo


def layer_of(module: nn.Module) -> ExtendedLayer | None:
    """The layer of an attention module under an extension by Ropewalk's attention; None of any other module."""
    layer: ExtendedLayer | None = module.__dict__.get(_LAYER)
    return layer


def modules_of(layers: Sequence[ExtendedLayer]) -> list[nn.Module]:
    """The attention modules of layers."""
    return [layer.probed.module for layer in layers]


def is_lifted(layer: ExtendedLayer) -> bool:
    """Whether the layer has a window, or chunks, that the extension lifts."""
    return layer.probed.limit is not None and not layer.keeps_window


def basis_of(layers: Sequence[ExtendedLayer]) -> Basis:
    """What a cache's numbers follow from, beside the extension."""
    return tuple((layer.facts, is_lifted(layer)) for layer in layers)


def type_of(layer: ExtendedLayer, kinds: Sequence[str]) -> str:
    """The type of a layer: what its rotary module is called with, or its entry in the config's list of all layers,
    which may contain layers without attention."""
    place = layer.probed.cached
    return layer.probed.layer_type or kinds[place.slot if place else layer.depth]


def is_on_disk(layer: ExtendedLayer) -> bool:
    """Whether the learned numbers are on disk, and in memory only while the module runs."""
    return any(value.device.type == "meta" for group in layer.weights.values() for value in group.values())


def learned_parameters(layer: ExtendedLayer) -> dict[str, nn.Parameter]:
    """The parameters of the layer's biases and scales, by their names in the module."""
    present = layer.probed.module._parameters
    named = {parameter_name(name, key): value for name, group in layer.learning.items() for key, value in group.items()}
    # Sharding takes no parameters without dimensions, and parameters of one type only.
    return {name: _register(present.get(name), value) for name, value in named.items()}


def _register(parameter: nn.Parameter | None, initial: Tensor) -> nn.Parameter:
    return nn.Parameter(initial.float().reshape(initial.shape or (1,))) if parameter is None else parameter


def parameter_name(method: str, key: str) -> str:
    """The name of an extension's parameter in an attention module."""
    return f"{PREFIX}{method}_{key}"


@torch.compiler.disable  # type: ignore[untyped-decorator]
def attention(
    module: nn.Module,
    q_bhid: Tensor,
    k_bgjd: Tensor,
    v_bgjd: Tensor,
    attention_mask: Any = None,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """The function that transformers calls instead of its own attention."""
    layer = layer_of(module)
    now = kwargs.get(PASS) or CURRENT.get()
    if layer is None or now is None:
        sentence = f"{type(module).__name__} called Ropewalk's attention, but is not part of the extended model"
        remedy = "call the model that was extended, and do not share its config with another model"
        raise DoesNotFit.because("attention", sentence, remedy=remedy)
    odd = unsupported_arguments(kwargs, now.caller_arguments)
    mask = None
    if layer.probed.own_mask:
        mask, odd = model_mask(attention_mask, kwargs.get(CHOSEN), k_bgjd), [name for name in odd if name != CHOSEN]
    _require_supported(module, None if layer.probed.own_mask else attention_mask, odd)
    if dropout:
        remedy = "load the model with attention_dropout=0"
        raise InvalidValue("attention dropout", "0 under an extension", dropout, remedy=remedy)
    if torch.is_autocast_enabled(v_bgjd.device.type):  # a norm may have made queries and keys wider
        q_bhid, k_bgjd = q_bhid.to(v_bgjd.dtype), k_bgjd.to(v_bgjd.dtype)
    q_bhid, k_bgjd = prepare_for_rotation(q_bhid, k_bgjd, layer)
    listener = LISTENER.get()
    if listener is not None:
        listener(layer, q_bhid, k_bgjd, mask)
    cache_layer, weights = now.cache_layer(layer.depth), None
    later = last_seen_of(attention_mask)
    with share_results(now.shared):
        if isinstance(cache_layer, ExtendedCacheLayer):
            _require_earlier(later)
            cache_layer.expected = False
            out = cache_layer.memory.read(q_bhid, k_bgjd, v_bgjd, now.written_bi)
        else:
            out, weights = _attend(layer, now, q_bhid, k_bgjd, v_bgjd, mask, later)
    return out.transpose(1, 2).contiguous(), weights


def _require_earlier(later: Tensor | None) -> None:
    """Refuse tokens that see later ones under a cache that keeps what the reach needs."""
    if later is not None:
        sentence = "tokens of this text see later ones, which a cache under this reach does not keep"
        raise InvalidValue.because("past_key_values", sentence, remedy="pass use_cache=False")


def prepare_for_rotation(q_bhid: Tensor, k_bgjd: Tensor, layer: ExtendedLayer) -> tuple[Tensor, Tensor]:
    """Queries and keys as the equation rotates them: without weights of norms that follow, and with the scaling."""
    if layer.facts.weighted:
        q_bhid, k_bgjd = (
            x if norm is None else (x / norm_weight(norm, x.shape[-1])).to(x.dtype)
            for x, norm in zip((q_bhid, k_bgjd), layer.probed.norms, strict=True)
        )
    return scale_queries(put_rotating_first(q_bhid, layer.probed), layer), put_rotating_first(k_bgjd, layer.probed)


def scale_queries(q_bhid: Tensor, layer: ExtendedLayer) -> Tensor:
    """Queries multiplied so that the logits have the model's scaling and temperature."""
    if layer.factor != 1:
        q_bhid = q_bhid * layer.factor
    if layer.rotating_factor == 1:
        return q_bhid
    rotating, rest = q_bhid[..., : layer.probed.rotating], q_bhid[..., layer.probed.rotating :]
    return torch.cat([rotating * layer.rotating_factor, rest], -1)


def _require_supported(module: nn.Module, mask: Any, odd: Sequence[str]) -> None:
    """Refuse what Ropewalk's attention would ignore: a mask that a module made itself, unknown keywords."""
    got = "a mask that it made itself" if isinstance(mask, Tensor) and mask.dim() != 2 else ", ".join(odd)
    if got:
        sentence = f"{type(module).__name__} asks attention for {got}; ours supports {SUPPORTED}"
        raise DoesNotFit.because("attention", sentence)


def _attend(
    layer: ExtendedLayer,
    now: ForwardPass,
    q_bhid: Tensor,
    k_bgjd: Tensor,
    v_bgjd: Tensor,
    mask: Tensor | None,
    later: Tensor | None,
) -> tuple[Tensor, Tensor | None]:
    """Attention without our cache: the answer, and the attention weights if they are requested."""
    numbers, documents, k_bgjd, v_bgjd = now.keys_of(layer.depth, k_bgjd, v_bgjd)
    tokens, keys = Tokens(numbers, documents), k_bgjd.shape[2]
    if now.axes is not None and layer.probed.rotating:
        tokens = tokens._replace(pair_positions_bjp=now.axes.of_pairs(layer.probed.axes, now.total - keys))
    if later is not None:
        tokens = tokens._replace(last_seen_bj=last_seen_positions(later, numbers, keys))
    if now.written_bi is not None:  # earlier tokens are keys alone, of which it does not matter
        tokens = tokens._replace(written_bj=pad(now.written_bi, (keys - now.queries, 0)))
    terms = (layer.extension, layer.facts, tokens)
    of_layer: dict[str, Any] = {
        "weights": layer.weights,
        "model_mask_bhij": None if mask is None else mask[..., :keys],
    }
    out = attend(q_bhid, k_bgjd, v_bgjd, *terms, **of_layer)
    if mixture := MIXTURES.get().get(layer.depth):
        other = attend(q_bhid, k_bgjd, v_bgjd, mixture.other, layer.facts, tokens, **of_layer)
        out = torch.lerp(other, out, mixture.share_h[None, :, None, None].to(out))
    if not now.wants_weights:
        return out, None
    return out, reference_weights(q_bhid, k_bgjd, *terms, **of_layer).to(q_bhid.dtype)


def put_rotating_first(x_bhnd: Tensor, layer: ProbedLayer) -> Tensor:
    """Rotating dimensions first, and all rotating in one direction: products do not depend on the order."""
    x_bhnd = x_bhnd.roll(-layer.first, -1) if layer.first else x_bhnd
    return _anticlockwise(x_bhnd, layer) if layer.clockwise else x_bhnd


def _anticlockwise(x_bhnd: Tensor, layer: ProbedLayer) -> Tensor:
    """Each pair swapped: (a, b) rotating towards a is (b, a) rotating towards b."""
    rotating, rest = x_bhnd[..., : layer.rotating], x_bhnd[..., layer.rotating :]
    if layer.interleaved:
        rotating = torch.stack([rotating[..., 1::2], rotating[..., ::2]], -1).flatten(-2)
    else:
        rotating = rotating.roll(layer.rotating // 2, -1)
    return torch.cat([rotating, rest], -1)
