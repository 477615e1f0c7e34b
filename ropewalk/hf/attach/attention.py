"""Mode attention: ours in place of the model's, and what it gets and computes in each layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from ropewalk.attention.scoped import scoped
from ropewalk.equation import reference_logits, reference_weights
from ropewalk.errors import DoesNotFit, InvalidValue
from ropewalk.extension.extension import Extension
from ropewalk.hf.attach.handle import ATTENTION, Handle, handle_of
from ropewalk.hf.attach.tables import chooser_edit, write
from ropewalk.hf.probe.capture import SUPPORTED
from ropewalk.hf.probe.host import attention_named, called_base, device_of, quiet
from ropewalk.hf.probe.probed_layer import ProbedLayer
from ropewalk.hf.runtime.caches import Owner
from ropewalk.hf.runtime.forward_pass import padding_mask
from ropewalk.hf.runtime.hooks import ForwardPreHook, after_forward, identity_rotation, keep_rotation, put_back
from ropewalk.hf.runtime.layer import (
    LISTENER,
    NAME,
    ExtendedLayer,
    attention,
    basis_of,
    learned_parameters,
    mark_module,
    modules_of,
)
from ropewalk.hf.runtime.own_masks import call_with_mask
from ropewalk.methods.spec import Weights

# The inputs of attention in every layer of an extended model, and the logits and weights computed from them.
#
# Row by row, by the definition: the full attention matrix is never built, so a text may be as long as the model reads.
#
# Legend: b batch, h query head, g key head, i query, j key, n token, d head dimension.


Of = TypeVar("Of")
CAPTURE_RTOL = 1e-2  # relative to the largest number: the error of half precision


class CapturedLayer(NamedTuple):
    """One layer's queries and keys before rotation, the layer, and the mask that it makes itself."""

    layer: ExtendedLayer
    q_bhid: Tensor
    k_bgjd: Tensor
    model_mask_bhij: Tensor | None = None

    def logits(self, row: int) -> Tensor:
        """The logits of the query in this row for the keys up to it, [batch, heads, row + 1]; -inf out of reach."""
        return self._row(reference_logits, row)

    def weights(self, row: int) -> Tensor:
        """The attention weights of the query in this row for the keys up to it, [batch, heads, row + 1]."""
        return self._row(reference_weights, row)

    def _row(self, formula: Callable[..., Tensor], row: int) -> Tensor:
        q_bhid, k_bgjd = self.q_bhid[:, :, row : row + 1], self.k_bgjd[:, :, : row + 1]
        inputs: dict[str, Any] = {"weights": self._learned()}
        if self.model_mask_bhij is not None:
            inputs["model_mask_bhij"] = self.model_mask_bhij[:, :, row : row + 1, : row + 1]
        return formula(q_bhid, k_bgjd, self.layer.extension, self.layer.facts, **inputs)[:, :, 0]

    def _learned(self) -> Mapping[str, Weights]:
        return {name: {key: x.detach().cpu() for key, x in group.items()} for name, group in self.layer.weights.items()}


def capture_layers(model: nn.Module, ids_bn: Tensor, summary: Callable[[CapturedLayer], Of]) -> list[Of]:
    """Read texts and return what `summary` computes of every layer, in order; the captured tensors are dropped.

    The model must be in mode attention; the empty extension (`extend(model, Extension(), mode="attention")`) leaves
    its logits unchanged.
    """
    host, summaries = _handle(model).model, []
    _require_texts(ids_bn)

    def take(layer: ExtendedLayer, q_bhid: Tensor, k_bgjd: Tensor, mask: Tensor | None) -> None:
        captured = CapturedLayer(layer, q_bhid.cpu(), k_bgjd.cpu(), None if mask is None else mask.cpu())
        summaries.append(summary(captured))

    with quiet(host), torch.no_grad(), scoped(LISTENER, take):
        host.base_model(input_ids=ids_bn.to(device_of(host)), use_cache=False)
    return summaries


def capture_biases(model: nn.Module) -> list[CapturedLayer]:
    """The biases of queries and keys in every layer: what it computes from one hidden state of 0.

    Refused where queries are not linear plus a bias, such as under norms: doubling the input must double the output,
    apart from the bias.
    """
    size = _handle(model).model.config.get_text_config().hidden_size
    some = torch.randn(size, generator=torch.Generator().manual_seed(0))
    zero, once, twice = (_capture_of(model, factor * some) for factor in (0, 1, 2))
    for base, one, two in zip(zero, once, twice, strict=True):
        for a, b, c in ((base.q_bhid, one.q_bhid, two.q_bhid), (base.k_bgjd, one.k_bgjd, two.k_bgjd)):
            if not (c - 2 * b + a).abs().max() <= CAPTURE_RTOL * c.abs().max():
                sentence = (
                    f"queries and keys of layer {base.layer.depth} are not a product plus a bias (is there a norm?)"
                )
                raise DoesNotFit.because("model", sentence, remedy="take a model without norms on queries and keys")
    return zero


def _capture_of(model: nn.Module, hidden: Tensor) -> list[CapturedLayer]:
    """The captured layers when every layer reads this hidden state as its one token."""
    handle = _handle(model)

    def put(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if "hidden_states" in kwargs:
            states = kwargs["hidden_states"]
            return args, {**kwargs, "hidden_states": torch.zeros_like(states) + hidden.to(states)}
        return (torch.zeros_like(args[0]) + hidden.to(args[0]), *args[1:]), kwargs

    with ExitStack() as undo:
        for layer in handle.layers:
            undo.callback(layer.probed.module.register_forward_pre_hook(put, with_kwargs=True).remove)
        return capture_layers(model, torch.zeros(1, 1, dtype=torch.long), lambda captured: captured)


def _handle(model: nn.Module) -> Handle:
    """The handle of a model under an extension by our attention: no other can be captured."""
    handle = handle_of(model)
    if handle is not None and any(layer.probed.slots for layer in handle.layers):
        sentence = f"{type(handle.model).__name__} attends several times in one forward; a layer can be captured once"
        raise DoesNotFit.because("model", sentence, remedy="take another model")
    if handle is None or handle.mode != ATTENTION:
        got = "no extension" if handle is None else f"mode {handle.mode}"
        raise DoesNotFit("model", "extended in mode attention", got, remedy='extend(model, ..., mode="attention")')
    return handle


def _require_texts(ids_bn: Any) -> None:
    if not isinstance(ids_bn, Tensor) or ids_bn.dim() != 2 or ids_bn.is_floating_point() or not ids_bn.numel():
        got = tuple(ids_bn.shape) if isinstance(ids_bn, Tensor) else ids_bn
        raise InvalidValue("ids", "whole numbers of shape [batch, at least 1 token]", got)


# Our attention in place of the model's.


def why_not_replaceable(layers: Sequence[ExtendedLayer]) -> DoesNotFit | None:
    """Why our attention cannot take the place of the model's; None where it can."""
    inline = next((layer.probed.inline for layer in layers if layer.probed.inline), "")
    if inline:
        return DoesNotFit.because("model", f"{inline}")
    return why_not_supported([layer.probed for layer in layers])


def why_not_supported(layers: Sequence[ProbedLayer]) -> DoesNotFit | None:
    """Which layer our attention would compute differently from the model, and why; None where there is none."""
    for index, layer in enumerate(layers):
        where = f"layer {index}"
        if layer.norm_follows and layer.interleaved is None:  # a rotation that acts on pairs may come before the norm
            sentence = f"{where} has a norm after the rotation, and it is no RMS norm with weights other than 0"
            return DoesNotFit.because(where, sentence)
        if layer.interleaved is None:
            return DoesNotFit.because(where, f"the pairs of {where} are neither halves nor neighbours")
        if layer.unsupported:
            return DoesNotFit.because(where, f"{where}: {layer.unsupported}", remedy=f"supported are {SUPPORTED}")
        if layer.sinks == "":
            sentence = f"the sinks of {where} are not a parameter of the layer with one number per head"
            return DoesNotFit.because(where, sentence)
    return None


def apply_attention(host: PreTrainedModel, extension: Extension, layers: list[ExtendedLayer]) -> ExitStack:
    """Put our attention in place of the model's. Undone at once where a step fails."""
    with ExitStack() as undo:
        attending = attending_configs(host, [layer.probed for layer in layers])
        undo.enter_context(attention_named(host, NAME, attention, padding_mask, attending))
        for layer in layers:
            module = layer.probed.module
            undo.enter_context(mark_module(layer))
            for name, value in learned_parameters(layer).items():
                value.data = value.data.to(device_of(host))
                module.register_parameter(name, value)
                undo.callback(module._parameters.pop, name)
        masking = [layer for layer in layers if layer.probed.own_mask]
        rotation = keep_rotation if masking else identity_rotation
        for rotary in {layer.probed.rotary for layer in layers if layer.probed.rotary}:
            undo.callback(rotary.register_forward_hook(rotation, with_kwargs=True).remove)
        for layer in masking:
            undo.enter_context(_choosing(layer))
        if masking and (edit := chooser_edit(extension, layers)) is not None:
            undo.enter_context(write(edit))
        base: Any = called_base(host, modules_of(layers))
        owner = Owner(extension, ATTENTION, basis_of(layers))
        undo.callback(owner.release)
        undo.callback(base.register_forward_pre_hook(ForwardPreHook(base, owner, layers), with_kwargs=True).remove)
        undo.callback(base.register_forward_hook(after_forward, always_call=True).remove)
        return undo.pop_all()


def _choosing(layer: ExtendedLayer) -> ExitStack:
    """Let a layer make its mask from what its reach shows, and what chooses inside it rotate as the model does."""
    module, undo = layer.probed.module, ExitStack()
    rotation = partial(put_back, layer.probed.rotary, layer.probed.layer_type)
    called = partial(call_with_mask, layer.depth, layer.extension.reach_or_causal)
    undo.callback(module.register_forward_pre_hook(called, with_kwargs=True).remove)
    for part in module.modules():
        if part is not module:
            undo.callback(part.register_forward_pre_hook(rotation, with_kwargs=True).remove)
    return undo


def attending_configs(host: PreTrainedModel, layers: Sequence[ProbedLayer]) -> list[Any]:
    """The configs of the parts whose attention becomes ours: an image encoder keeps its own."""
    return [host.config.get_text_config(), *(getattr(layer.module, "config", None) for layer in layers)]
