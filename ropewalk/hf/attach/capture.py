"""What the layers of an extended model hand to attention, and the logits and weights that follow from it.

Row by row, by the definition: the square of attention is never held, so that a text may be as long as the model reads.

Legend: b batch, h query head, g key head, i query, j key, n token, d head dimension.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from ropewalk.equation import reference_logits, reference_weights
from ropewalk.errors import DoesNotFit, InvalidValue
from ropewalk.hf.attach.handle import ATTENTION, Handle, handle_of
from ropewalk.hf.probe.rotary import device_of, quiet
from ropewalk.hf.runtime.layer import LISTENER, ExtendedLayer
from ropewalk.scoped import scoped
from ropewalk.spec import Weights

Of = TypeVar("Of")
CLOSE = 1e-2  # of the largest number: what half precision leaves


class CapturedLayer(NamedTuple):
    """One layer's queries and keys before they turn, and what is in force there."""

    own: ExtendedLayer
    q_bhid: Tensor
    k_bgjd: Tensor

    def logits(self, row: int) -> Tensor:
        """Of the query in this row and the keys up to it, [batch, heads, row + 1]; minus infinity out of reach."""
        return self._row(reference_logits, row)

    def weights(self, row: int) -> Tensor:
        """How much the query in this row takes of each key up to its own, [batch, heads, row + 1]."""
        return self._row(reference_weights, row)

    def _row(self, formula: Callable[..., Tensor], row: int) -> Tensor:
        q_bhid, k_bgjd = self.q_bhid[:, :, row : row + 1], self.k_bgjd[:, :, : row + 1]
        return formula(q_bhid, k_bgjd, self.own.extension, self.own.facts, weights=self._learned())[:, :, 0]

    def _learned(self) -> Mapping[str, Weights]:
        return {name: {key: x.detach().cpu() for key, x in own.items()} for name, own in self.own.weights.items()}


def capture_layers(model: nn.Module, ids_bn: Tensor, each: Callable[[CapturedLayer], Of]) -> list[Of]:
    """Read texts, and take what `each` makes of every layer, in order; of the layer itself nothing is kept.

    The model stands under an extension by attention; the empty one (`extend(model, Extension(), mode="attention")`)
    leaves it as it is.
    """
    host, found = _handle(model).model, []
    _require_texts(ids_bn)

    def take(own: ExtendedLayer, q_bhid: Tensor, k_bgjd: Tensor) -> None:
        found.append(each(CapturedLayer(own, q_bhid.cpu(), k_bgjd.cpu())))

    with quiet(host), torch.no_grad(), scoped(LISTENER, take):
        host.base_model(input_ids=ids_bn.to(device_of(host)), use_cache=False)
    return found


def capture_biases(model: nn.Module) -> list[CapturedLayer]:
    """What each layer makes of hidden states of 0, for one token: the biases of its queries and keys.

    Refused where queries are no sum of a bias and a rest, such as under norms: doubling what comes in must double what
    goes out but for the bias.
    """
    size = _handle(model).model.config.get_text_config().hidden_size
    some = torch.randn(size, generator=torch.Generator().manual_seed(0))
    still, once, twice = (_heard_of(model, factor * some) for factor in (0, 1, 2))
    for nothing, one, two in zip(still, once, twice, strict=True):
        for a, b, c in ((nothing.q_bhid, one.q_bhid, two.q_bhid), (nothing.k_bgjd, one.k_bgjd, two.k_bgjd)):
            if not (c - 2 * b + a).abs().max() <= CLOSE * c.abs().max():
                rule = "one whose queries and keys are a product plus a bias"
                raise DoesNotFit("model", rule, f"layer {nothing.own.depth}, a norm on them perhaps")
    return still


def _heard_of(model: nn.Module, hidden: Tensor) -> list[CapturedLayer]:
    """What the layers hand to attention when each is given these hidden states for its one token."""
    handle = _handle(model)

    def put(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if "hidden_states" in kwargs:
            own = kwargs["hidden_states"]
            return args, {**kwargs, "hidden_states": torch.zeros_like(own) + hidden.to(own)}
        return (torch.zeros_like(args[0]) + hidden.to(args[0]), *args[1:]), kwargs

    with ExitStack() as undo:
        for own in handle.layers:
            undo.callback(own.probed.module.register_forward_pre_hook(put, with_kwargs=True).remove)
        return capture_layers(model, torch.zeros(1, 1, dtype=torch.long), lambda heard: heard)


def _handle(model: nn.Module) -> Handle:
    """The handle of a model under an extension by our attention: no other can be captured."""
    handle = handle_of(model)
    if handle is None or handle.mode != ATTENTION:
        remedy = 'extend(model, ..., mode="attention")'
        raise DoesNotFit(
            "model", "under an extension by attention", "none" if handle is None else handle.mode, remedy=remedy
        )
    return handle


def _require_texts(ids_bn: Any) -> None:
    if not isinstance(ids_bn, Tensor) or ids_bn.dim() != 2 or ids_bn.is_floating_point() or not ids_bn.numel():
        got = tuple(ids_bn.shape) if isinstance(ids_bn, Tensor) else ids_bn
        raise InvalidValue("ids", "whole numbers of shape [batch, at least 1 token]", got)
