"""`extend`: a model under an extension, until it is removed. Only this model's instance changes, and changes back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.masking_utils import AttentionMaskInterface

from ropewalk.errors import Conflict, DoesNotFit, InvalidValue
from ropewalk.extension import Extension
from ropewalk.facts import Facts
from ropewalk.hf.facts import facts_of
from ropewalk.hf.layers import ATTRIBUTE, NAME, Attached, attached, attention, learned
from ropewalk.hf.opening import BareOnly, Opening, closing
from ropewalk.hf.probe import Layer, attention_named, probe, quiet, rotary_modules
from ropewalk.parsing import parse

TOKENS = 24  # of the text on which an identity extension must give the model's own logits
# Of the logits' root mean square. What is mistaken is off by more than 0.1; half precision by 0.05 in deep models.
CLOSE = {torch.float32: 1e-3, torch.float64: 1e-6}
HALF = 0.1
HANDLE = "_ropewalk_handle"


@dataclass(frozen=True)
class Handle(BareOnly):
    """An extended model."""

    model: PreTrainedModel
    extension: Extension
    layers: tuple[Attached, ...]
    lifts_windows: bool
    undo: ExitStack

    @property
    def facts(self) -> Facts:
        """What the model brings, as its first rotating layer has it."""
        return next((own.facts for own in self.layers if own.layer.rotating), self.layers[0].facts)

    def describe(self) -> str:
        """The formula in force, and how layers differ from it."""
        lines = [self.extension.describe()]
        for own in self.layers:
            if own.left_alone:
                lines.append(f"layer {own.depth}: left alone, it sees {own.layer.window} keys by itself")
            elif not own.layer.rotating:
                lines.append(f"layer {own.depth}: turns nothing by itself, and still does not")
        return "\n".join(lines)

    def remove(self) -> None:
        """Put everything back. Removing twice is removing once."""
        self.undo.close()


def extend(
    model: nn.Module,
    extension: Extension | str,
    *,
    target_len: int | None = None,
    lift_windows: bool = False,
) -> Handle:
    """Put a causal language model under an extension, given as such or as text ("yarn:factor=4+log_n").

    `target_len` is for presets that are told a length; `lift_windows` lets the extension rule layers that have a window
    of their own. Everything is checked before anything is touched, and `handle.remove()` leaves no trace.
    """
    host = host_of(model)
    layers = probe(host) if HANDLE not in host.__dict__ else [own.layer for own in host.__dict__[HANDLE].layers]
    facts = [facts_of(host, layer, len(layers)) for layer in layers]
    wanted = _parsed(extension, facts[0], target_len)
    present: Handle | None = host.__dict__.get(HANDLE)
    if present is not None:
        if present.extension == wanted and present.lifts_windows == lift_windows:
            return present
        raise Conflict("model", "free of another extension", present.extension.to_json(), remedy="remove that first")
    require_carried(layers)
    _require_steady(layers, wanted)
    bare = [
        attached(n, *each, Extension(), lift_windows=False) for n, each in enumerate(zip(layers, facts, strict=True))
    ]
    _require_identity(host, bare)
    own = [
        attached(n, *each, wanted, lift_windows=lift_windows) for n, each in enumerate(zip(layers, facts, strict=True))
    ]
    handle = Handle(host, wanted, tuple(own), lift_windows, _attach(host, wanted, own))
    host.__dict__[HANDLE] = handle
    handle.undo.callback(host.__dict__.pop, HANDLE)
    return handle


@contextmanager
def extended(model: nn.Module, extension: Extension | str, **given: Any) -> Iterator[Handle]:
    """`extend` for as long as a block lasts."""
    already = HANDLE in host_of(model).__dict__
    handle = extend(model, extension, **given)
    try:
        yield handle
    finally:
        if not already:  # what was there before the block stays
            handle.remove()


def host_of(model: nn.Module) -> PreTrainedModel:
    """transformers' model inside whatever wraps it, such as an adapter of peft."""
    inside: Any = model.get_base_model() if hasattr(model, "get_base_model") else model  # type: ignore[operator]
    if not isinstance(inside, PreTrainedModel) or inside.get_output_embeddings() is None:  # type: ignore[no-untyped-call]
        raise InvalidValue("model", "a causal language model of transformers", type(model).__name__)
    return inside


def _parsed(extension: Extension | str, facts: Facts, target_len: int | None) -> Extension:
    if target_len is not None and target_len <= facts.trained_len:
        rule = f"above the trained length ({facts.trained_len})"
        raise DoesNotFit("target_len", rule, target_len, remedy="within it the model needs no extension")
    if isinstance(extension, str):
        extension = parse(extension, trained_len=facts.trained_len, target_len=target_len, layers=facts.layers)
    if not isinstance(extension, Extension):
        raise InvalidValue("extension", "an Extension, or a text such as yarn:factor=4", extension)
    for slot, remedy in (("decoding", "use nbce_generate"), ("surgery", "convert the model first")):
        if getattr(extension, slot):
            raise DoesNotFit(slot, "left to a call of its own", extension.specs[slot][0].name, remedy=remedy)
    extension.check_against(facts)
    return extension


def _require_steady(layers: list[Layer], wanted: Extension) -> None:
    """Refuse to keep a schedule of the model's own that changes with the length of the whole batch."""
    if any(layer.varies for layer in layers) and wanted.frequencies is None:
        rule = "given, since the model's own schedule changes with the longest text of a batch (dynamic or longrope)"
        raise DoesNotFit("frequencies", rule, None, remedy="say dynamic_ntk, frequencies.longrope:..., or another")


def require_carried(layers: list[Layer]) -> None:
    """Refuse what attention of ours would compute otherwise than the model was trained."""
    for index, layer in enumerate(layers):
        what = f"layer {index}"
        if layer.norm_follows:
            raise DoesNotFit(what, "one that turns queries and keys last", "a norm after the rotation")
        if layer.interleaved is None:
            raise DoesNotFit(what, "one whose pairs are halves or neighbours", "pairs of another kind")
        if layer.softcap:
            raise DoesNotFit(what, "one without a cap on its logits", f"softcap {layer.softcap}")
        if layer.sinks:
            raise DoesNotFit(what, "one without learned sinks in its softmax", "sinks")


def _require_identity(host: PreTrainedModel, bare: list[Attached]) -> None:
    """Refuse a model whose own logits this mechanism does not reproduce."""
    vocabulary: Any = host.get_input_embeddings().weight
    ids = torch.arange(min(TOKENS, bare[0].facts.trained_len), device=vocabulary.device)[None] * 7 % len(vocabulary)
    with quiet(host), torch.no_grad():
        expected = host(input_ids=ids, use_cache=False).logits.double()
        with _attach(host, Extension(), bare):
            got = host(input_ids=ids, use_cache=False).logits.double()
    error = float((got - expected).square().mean().sqrt() / expected.square().mean().sqrt())
    if not error <= CLOSE.get(vocabulary.dtype, HALF):
        rule = "one whose logits are reproduced when nothing is extended"
        raise DoesNotFit("model", rule, f"{type(host).__name__}, relative error {error:.1e}")


def _attach(host: PreTrainedModel, extension: Extension, own: list[Attached]) -> ExitStack:
    """Everything that changes, with the way back; undone at once where a step fails."""
    with ExitStack() as undo:
        AttentionMaskInterface.register(NAME, _mask)
        undo.enter_context(attention_named(host, NAME, attention))
        for each in own:
            each.layer.module.__dict__[ATTRIBUTE] = each
            undo.callback(each.layer.module.__dict__.pop, ATTRIBUTE)
            for name, value in learned(each).items():
                value.data = value.data.to(host.device)
                each.layer.module.register_parameter(name, value)
                undo.callback(each.layer.module._parameters.pop, name)
        for module in rotary_modules(host):
            undo.callback(module.register_forward_hook(_straight).remove)
        base: Any = host.base_model
        undo.callback(base.register_forward_pre_hook(Opening(base, extension, own), with_kwargs=True).remove)
        undo.callback(base.register_forward_hook(closing, always_call=True).remove)
        return undo.pop_all()


def _mask(*, attention_mask: Tensor | None = None, **_: Any) -> Tensor | None:
    """The padding as it was given: who sees whom is not a matter of masks here."""
    return attention_mask


def _straight(_: nn.Module, __: Any, output: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """The rotary module's answer that turns nothing: keys reach the cache as they are."""
    return torch.ones_like(output[0]), torch.zeros_like(output[1])
