"""The inputs of attention in every layer of an extended model, and the logits and weights computed from them.

Row by row, by the definition: the full attention matrix is never built, so a text may be as long as the model reads.

Legend: b batch, h query head, g key head, i query, j key, n token, d head dimension.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from ropewalk.attention.scoped import scoped
from ropewalk.equation import reference_logits, reference_weights
from ropewalk.errors import DoesNotFit, InvalidValue
from ropewalk.hf.attach.handle import ATTENTION, Handle, handle_of
from ropewalk.hf.probe.probe import device_of, quiet
from ropewalk.hf.runtime.layer import LISTENER, ExtendedLayer
from ropewalk.methods.spec import Weights

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
