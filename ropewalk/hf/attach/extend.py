"""Put a model under an extension until it is removed. Only this instance changes, and it is restored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from torch import nn
from transformers import PreTrainedModel

from ropewalk.attention.layout.retention import sees_everything
from ropewalk.errors import Conflict, DoesNotFit, InvalidValue, UnknownName
from ropewalk.extension.extension import Extension
from ropewalk.extension.parsing import Line, read_line
from ropewalk.hf.attach.attention import apply_attention, why_not_replaceable
from ropewalk.hf.attach.handle import ATTENTION, MODES, TABLES, Handle, attach_handle, handle_of, host_of, main_layer
from ropewalk.hf.attach.saving import replace_methods, store_with_adapters
from ropewalk.hf.attach.tables import TableEdit, apply_tables, edit_for, identity_edit, why_not_followed, write
from ropewalk.hf.checkpoint.fetch import fetch_config
from ropewalk.hf.load_options import LoadOptions
from ropewalk.hf.probe.facts import (
    corrected_len,
    facts_of,
    lengths_of,
    own_schedule_of,
    parse_for_config,
    require_not_restated,
    what_happens,
    why_scaled_twice,
    with_plain_scalings,
)
from ropewalk.hf.probe.host import CHANGES, alone_with, called_base
from ropewalk.hf.probe.probe import HALF_CHOOSING, HALF_RTOL, known, probe, why_not_identical
from ropewalk.hf.probe.probed_layer import ProbedLayer
from ropewalk.hf.runtime.layer import ExtendedLayer, attach_layer, modules_of
from ropewalk.methods.facts import Facts
from ropewalk.methods.frequencies import NoPE, RoPE
from ropewalk.methods.spec import Spec


def extend(
    model: nn.Module,
    extension: Extension | str,
    *,
    target_len: int | None = None,
    trained_len: int | None = None,
    lift_windows: bool = False,
    mode: str | None = None,
) -> Handle:
    """Put a causal language model under an extension.

        handle = rw.extend(model, "yarn", target_len=32768)
        print(handle.describe())
        handle.remove()

    Everything is checked before the model changes. The same extension twice returns the same handle.

    Args:
        model: a transformers model with a language-model head, or a wrapper such as peft's.
        extension: a line ("yarn:factor=4+log_n"), or an `Extension`. A schedule builds on the frequencies that the
            checkpoint came with; "+instead" replaces the checkpoint's own schedule.
        target_len: in tokens, for presets that derive their values from it.
        trained_len: in tokens; corrects the trained length of the config.
        lift_windows: extends layers with windows too.
        mode: "tables" puts a static schedule into the model's own rotary modules; "attention" replaces the model's
            attention by ours; None takes tables where they can express the extension.
    """
    if mode not in (None, *MODES):
        raise UnknownName("mode", mode, known=MODES)
    host = host_of(model, head=False)
    with CHANGES:
        present = handle_of(host)
        if present is None:
            with alone_with(host):
                asked = _build_asked(host, extension, target_len, trained_len)
                return _put_on(model, host, asked, target_len, lift_windows, mode)
        asked = _build_asked(host, extension, target_len, trained_len)
        same = present.lifts_windows == lift_windows and present.trained_len == asked.trained_len
        if present.extension == asked.extension and same and mode in (None, present.mode):
            return present
        raise Conflict.because("model", f"the model is already extended: {present!r}", remedy="remove that first")


def _put_on(
    model: nn.Module, host: PreTrainedModel, asked: _Asked, target_len: int | None, lift_windows: bool, mode: str | None
) -> Handle:
    """Put what was asked for on a model without an extension."""
    with torch.inference_mode(False), torch.no_grad():  # what is made here may be trained later
        plan = _plan(host, asked, lift_windows)
        mode, reason, undo = _apply(plan, host, target_len, mode)
    with undo:
        parts = (ExitStack(), mode, reason, asked.trained_len, plan.own_schedule, target_len)
        handle = Handle(host, plan.extension, tuple(plan.layers), lift_windows, *parts)
        undo.enter_context(_bind(handle, model))
        handle.undo.enter_context(undo.pop_all())
    return handle


def _bind(handle: Handle, model: nn.Module) -> ExitStack:
    """Bind the handle to its model, and what runs or saves the model or its adapters to the handle."""
    base = called_base(handle.model, modules_of(handle.layers))
    with ExitStack() as undo:
        undo.enter_context(attach_handle(handle, base))
        undo.enter_context(replace_methods(handle))
        undo.enter_context(store_with_adapters(handle, base, model))
        undo.callback(base.register_forward_pre_hook(handle.forwards.begin, prepend=True).remove)
        undo.callback(base.register_forward_hook(handle.forwards.end, always_call=True).remove)
        return undo.pop_all()


def require_extendable(model: str, extension: str, target_len: int | None, options: LoadOptions) -> Extension:
    """The extension of a line; refused, before weights are read, where the config's lengths or layers rule it out."""
    text, line = fetch_config(model, options).get_text_config(), read_line(extension)
    known, original = lengths_of(text, corrected=options.trained_len)
    require_beyond("target_len", target_len, original if line.replaces_scaling else known)
    return parse_for_config(text, line, target_len, trained_len=options.trained_len)


class Plan(NamedTuple):
    """What an extension would put in force in every layer of a model, which is unchanged."""

    extension: Extension
    base: list[ExtendedLayer]  # without an extension
    layers: list[ExtendedLayer]
    own_schedule: str  # what happens to the schedule that the checkpoint came with


def plan_extension(host: PreTrainedModel, extension: Extension | str, *, target_len: int | None = None) -> Plan:
    """The plan of an extension for a model without one. What `extend` would refuse is refused."""
    return _plan(host, _build_asked(host, extension, target_len, None), lift_windows=False)


class _Asked(NamedTuple):
    """An extension for a model, whose layers and facts are known."""

    line: Extension | Line
    extension: Extension
    layers: list[ProbedLayer]
    facts: list[Facts]
    trained_len: int | None

    @property
    def main(self) -> Facts:
        return self.facts[main_layer(self.layers)]


def _build_asked(
    host: PreTrainedModel, extension: Extension | str, target_len: int | None, trained_len: int | None
) -> _Asked:
    """The extension built for the model, or refused."""
    present = handle_of(host)
    layers = known(host).layers if present is None else [layer.probed for layer in present.layers]
    trained_len = corrected_len(host) if trained_len is None else trained_len
    facts = [facts_of(host, layer, len(layers), trained_len) for layer in layers]
    line = read_line(extension) if isinstance(extension, str) else extension
    wanted = _build(line, facts[main_layer(layers)], target_len)
    return _Asked(line, wanted, layers, facts, trained_len)


def _plan(host: PreTrainedModel, asked: _Asked, lift_windows: bool) -> Plan:
    wanted, layers, facts = asked.extension, asked.layers, asked.facts
    if reason := why_not_fitting(host, layers, wanted, facts):
        raise reason
    if isinstance(asked.line, Line):  # an Extension object was built on purpose, or stored while it was in force
        require_not_restated(host.config.get_text_config(), asked.line)
    if wanted.replaces_scaling:
        layers = with_plain_scalings(host, layers)
    base, changed = attach_layers(layers, facts, Extension()), attach_layers(layers, facts, wanted, lift_windows)
    own_schedule = own_schedule_of(host.config.get_text_config(), layers, facts)
    return Plan(wanted, base, changed, what_happens(own_schedule, wanted, asked.main, layers))


@contextmanager
def extended(model: nn.Module, extension: Extension | str, **kwargs: Any) -> Iterator[Handle]:
    """`extend` for the length of a block.

        with rw.extended(model, "rerope+log_n") as handle:
            model.generate(ids, max_new_tokens=20)

    An extension that the model was under before the block stays.

    Args:
        model: as in `extend`.
        extension: as in `extend`.
        kwargs: the other arguments of `extend`.
    """
    with remove_after(model, lambda: extend(model, extension, **kwargs)) as handle:
        yield handle


@contextmanager
def remove_after(model: nn.Module, put_on: Callable[[], Handle]) -> Iterator[Handle]:
    """Remove after a block what `put_on` puts on the model; an extension that was there before stays.

    Blocks of several threads share an extension, which the last of them removes.
    """
    with CHANGES:
        before = handle_of(model)
        handle = put_on()
        only_blocks = before is None or bool(before.blocks)
        if only_blocks:
            handle.blocks.append(None)
    try:
        yield handle
    finally:
        with CHANGES:
            if only_blocks:
                handle.blocks.pop()
            if only_blocks and not handle.blocks:
                handle.remove()


def _build(extension: Extension | Line, facts: Facts, target_len: int | None) -> Extension:
    """The extension of a line, built for the model, or the one that was passed; refused where it does not fit."""
    if target_len is not None and (isinstance(target_len, bool) or not isinstance(target_len, int)):
        raise InvalidValue("target_len", "a whole number of tokens, such as 32768", target_len)
    if isinstance(extension, Line):
        ground = facts.unscaled if extension.replaces_scaling else facts
        require_beyond("target_len", target_len, ground.trained_len)  # before a preset computes with it
        extension = extension.build_for(facts, target_len)
    if not isinstance(extension, Extension):
        raise InvalidValue("extension", "an Extension, or a text such as yarn:factor=4", extension)
    require_beyond("target_len", target_len, extension.builds_on(facts).trained_len)
    for slot, remedy in (("decoding", _reads_with(extension)), ("surgery", "convert the model first (rw.convert)")):
        if getattr(extension, slot):
            name = extension.specs[slot][0].name
            raise DoesNotFit.because(slot, f"extend cannot apply {name}, a method of {slot}", remedy=remedy)
    extension.check_against(facts)
    return extension


def _reads_with(extension: Extension) -> str:
    """The remedy for a method of decoding: what reads with it."""
    rule = extension.decoding
    if rule is None or (rule.of_contexts and not rule.of_attention):
        return "use rw.nbce_generate"
    return "use rw.ape_stream" if rule.of_attention else "use rw.contrast_stream"


NO_NEED = "up to that length the model needs no extension"


def require_beyond(field: str, target_len: int | None, trained_len: int, remedy: str = NO_NEED) -> None:
    """Refuse a target length within the trained length."""
    if target_len is not None and target_len <= trained_len:
        raise DoesNotFit(field, f"above the trained length ({trained_len})", target_len, remedy=remedy)


def why_not_fitting(
    host: PreTrainedModel, layers: Sequence[ProbedLayer], extension: Extension, facts: Sequence[Facts]
) -> DoesNotFit | None:
    """Why an extension does not fit what a model rotates and scales by itself; None where it does."""
    config = host.config.get_text_config()
    return (
        why_not_steady(layers, extension)
        or why_not_rotated(layers, extension, facts)
        or why_scaled_twice(config, layers, extension, facts)
    )


def why_not_steady(layers: Sequence[ProbedLayer], extension: Extension) -> DoesNotFit | None:
    """Why the checkpoint's schedule cannot be kept: it changes with the length of the whole batch."""
    varies = any(layer.varies and layer.long_table is None for layer in layers)
    if not varies or extension.frequencies is not None or extension.replaces_scaling:
        return None
    sentence = "the checkpoint's schedule (dynamic) changes with the longest text of a batch, so it must be replaced"
    remedy = "replace it by dynamic_ntk, which changes row by row, or by another schedule"
    return DoesNotFit.because("frequencies", sentence, remedy=remedy)


def why_not_rotated(layers: Sequence[ProbedLayer], extension: Extension, facts: Sequence[Facts]) -> DoesNotFit | None:
    """What changes only the rotation, on a model without any, or one whose rotation was dropped; None elsewhere."""
    dropped = any(layer.stands_still for layer in layers)
    if any(layer.rotating and not layer.stands_still for layer in layers) or (dropped and extension.replaces_scaling):
        return None
    in_force = [extension.at_layer(depth, known) for depth, known in enumerate(facts)]
    biased = any(local.biases for local in in_force)
    stated = extension.frequencies
    # Biases are written with the schedule that rotates nothing; a table that stands still may be left or stated again.
    keeps = (isinstance(stated, NoPE) and biased) or (isinstance(stated, NoPE | RoPE) and dropped)
    rotation_only: dict[str, Spec | None] = {"frequencies": None if keeps else stated}
    if not biased and all(sees_everything(local) for local in in_force):
        rotation_only |= {"reach": extension.reach, "positions": extension.positions}
    for slot, spec in rotation_only.items():
        if spec is not None:
            sentence = f"{spec.name} changes how queries and keys are rotated, and no layer of this model rotates them"
            again = "; +instead rotates again" if dropped else ""
            return DoesNotFit.because(
                slot, sentence, remedy=f"log_n, windows, sinks and biases need no rotation{again}"
            )
    return None


# How it is applied: by the model's own tables, or by our attention.


def attach_layers(
    layers: Sequence[ProbedLayer], facts: Sequence[Facts], extension: Extension, lift: bool = False
) -> list[ExtendedLayer]:
    """What is in force in each layer."""
    pairs = enumerate(zip(layers, facts, strict=True))
    return [attach_layer(depth, layer, known, extension, lift_windows=lift) for depth, (layer, known) in pairs]


class Modes:
    """The modes that one base model allows. Each is tested when it is first needed, and once."""

    def __init__(self, host: PreTrainedModel, base: list[ExtendedLayer]) -> None:
        self.host, self.base = host, base
        self._tested: dict[str, DoesNotFit | None] = {}

    def choose(
        self, extension: Extension, layers: list[ExtendedLayer], target_len: int | None, mode: str | None = None
    ) -> tuple[TableEdit | None, str]:
        """The edit of the tables where they carry an extension, or None and why not; refused where nothing can."""
        if mode == ATTENTION:
            self.require(ATTENTION)
            return None, "requested by mode='attention'"
        edit = edit_for(extension, layers, target_len)
        hindrance = edit if isinstance(edit, DoesNotFit) else self.why_not(TABLES)
        if isinstance(edit, TableEdit) and hindrance is None:
            return edit, ""
        if hindrance is not None and mode == TABLES:
            raise hindrance
        if inline := next((layer.probed.inline for layer in self.base if layer.probed.inline), ""):
            raise DoesNotFit.because("model", f"{inline}, and {hindrance}")
        self.require(ATTENTION)
        return None, str(hindrance)

    def require(self, mode: str) -> None:
        """Refuse a mode that changes the logits of the model even without an extension."""
        if reason := self.why_not(mode):
            raise reason

    def why_not(self, mode: str) -> DoesNotFit | None:
        """Why the model does not allow a mode; None where it does.

        A model under an extension was tested in its mode, and cannot be in the other now.
        """
        if mode == ATTENTION and (reason := why_not_replaceable(self.base)):
            return reason
        if mode not in self._tested and handle_of(self.host) is None:
            with alone_with(self.host):
                allowed, tried = known(self.host).allowed, (mode, *(layer.facts for layer in self.base))
                self._tested[mode] = None if tried in allowed else self._why_changed(mode)
                if self._tested[mode] is None:
                    allowed.add(tried)
        return self._tested.get(mode)

    def why_not_followed(self, extension: Extension, layers: list[ExtendedLayer]) -> DoesNotFit | None:
        """Why the model's tables cannot hold a static extension, or are not what it computes by; None where neither."""
        edit = edit_for(extension, layers, None)
        if isinstance(edit, DoesNotFit):
            return edit
        if (reason := self.why_not(TABLES)) or handle_of(self.host) is not None:
            return reason
        with alone_with(self.host), write(edit):
            return why_not_followed(edit, probe(self.host))

    def _why_changed(self, mode: str) -> DoesNotFit | None:
        """How the logits change in a mode."""
        # transformers' own tables of long texts are of whole batches.
        short = [layer.probed.long_table.above for layer in self.base if layer.probed.long_table]
        most = min([self.base[0].facts.trained_len, *short])
        if mode == TABLES:
            return why_not_identical(self.host, most, lambda: write(identity_edit(self.base)))
        half = HALF_CHOOSING if any(layer.probed.own_mask for layer in self.base) else HALF_RTOL
        try:
            return why_not_identical(
                self.host, most, lambda: apply_attention(self.host, Extension(), self.base), half=half
            )
        except DoesNotFit as refused:  # the model calls our attention, which can answer it in no other way
            return refused


def _apply(plan: Plan, host: PreTrainedModel, target_len: int | None, mode: str | None) -> tuple[str, str, ExitStack]:
    """Apply the extension: the mode that was used, why not tables, and what undoes it."""
    modes = Modes(host, plan.base)
    edit, reason = modes.choose(plan.extension, plan.layers, target_len, mode)
    if edit is not None:
        undo = apply_tables(host, plan.extension, plan.layers, edit)
        if isinstance(undo, ExitStack):
            return TABLES, "", undo
        if mode == TABLES:
            raise undo
        reason = str(undo)
        modes.require(ATTENTION)
    return ATTENTION, reason, apply_attention(host, plan.extension, plan.layers)
