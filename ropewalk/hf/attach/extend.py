"""Put an extension into a model, and take it out; what of it a config can store."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from ropewalk.attention.layout.retention import reach_retention
from ropewalk.errors import Conflict, DoesNotFit, InvalidValue, UnknownName
from ropewalk.extension.extension import Extension
from ropewalk.extension.parsing import Line, read_line
from ropewalk.hf.attach.adapters import adapters_storing
from ropewalk.hf.attach.handle import (
    ATTENTION,
    MODES,
    TABLES,
    Handle,
    attach_handle,
    handle_of,
    host_of,
    main_layer,
    replace_methods,
)
from ropewalk.hf.attach.modes import Modes, apply_attention, apply_tables, attach_layers
from ropewalk.hf.attach.rotary_tables import TABLE_RTOL, table_slot
from ropewalk.hf.checkpoint import sidecar
from ropewalk.hf.checkpoint.closed_config import FILE, close
from ropewalk.hf.checkpoint.config_schedule import require_expressible, standard_config, temperature_of
from ropewalk.hf.checkpoint.fetch import runs_own_code
from ropewalk.hf.probe.capture import CHANGES, alone_with, called_base
from ropewalk.hf.probe.facts import (
    corrected_len,
    facts_of,
    own_schedule_of,
    require_not_restated,
    require_scaled_once,
    what_happens,
    with_plain_scalings,
)
from ropewalk.hf.probe.probe import probe
from ropewalk.hf.probe.probed_layer import ProbedLayer
from ropewalk.hf.runtime.layer import ExtendedLayer, modules_of, static_table
from ropewalk.methods.facts import Facts
from ropewalk.methods.frequencies import NoPE, RoPE
from ropewalk.methods.spec import Spec

# The extension in a folder of weights: in the config where that can say it, else in the sidecar.


def store_unchecked(handle: Handle, place: Path, state: dict[str, Tensor] | None = None) -> None:
    """Store it beside what transformers or peft wrote. No weights are loaded to compare.

    So the config states the schedule only where its rotary modules, built anew, have the tables that are in force.
    """
    if (place / FILE).is_file() and not runs_own_code(handle.model):
        try:
            config = config_with_extension(handle, _target_len(handle))
            _require_followed(handle, config.get_text_config())
        except DoesNotFit:
            pass
        else:
            sidecar.remove(place)
            config.save_pretrained(place)
            return
    handle.keep(place, state)
    close(place)


def config_with_extension(handle: Handle, target_len: int | None) -> Any:
    """The model's config with the extension, or a refusal with the reason."""
    require_expressible(handle.extension, handle.layers)
    config = standard_config(handle.model.config, handle.extension, handle.layers, target_len)
    config.architectures = [type(handle.model).__name__]
    return config


def _target_len(handle: Handle) -> int | None:
    """What the caller named, or the schedule states; the trained length where neither does, as with a new base."""
    is_stated = handle.target_len is not None or math.isfinite(handle.extension.theta.stretch)
    return handle.target_len if is_stated else handle.facts.trained_len


def _require_followed(handle: Handle, text: Any) -> None:
    """Refuse a config of which a rotary module makes other tables."""
    for layer in handle.layers:
        if layer.probed.rotating and not layer.left_alone and not _follows(layer, handle.extension, text):
            raise DoesNotFit.because("config", f"layer {layer.depth} would not follow the schedule of the config")


def _follows(layer: ExtendedLayer, extension: Extension, text: Any) -> bool:
    slot = table_slot(layer.probed)
    try:
        module: Any = type(slot.module)(config=text)
        made = module._buffers[f"{slot.prefix}inv_freq"].double().cpu()
        temperature = float(getattr(module, f"{slot.prefix}attention_scaling"))
    except Exception:  # a class with other arguments, or one that refuses the config: whatever it raises
        return False
    wanted = static_table(extension, layer.facts).double()
    alike = made.shape == wanted.shape and torch.allclose(made, wanted, rtol=TABLE_RTOL, atol=1e-9)
    return alike and math.isclose(temperature, temperature_of(extension, layer), rel_tol=TABLE_RTOL)


# `extend`: put a model under an extension until it is removed. Only this instance changes, and it is restored.


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

    `model` is a transformers model with a language-model head, or a wrapper such as peft's. `extension` is an
    `Extension` or a line of notation ("yarn:factor=4+log_n"). A schedule builds on the frequencies that the checkpoint
    came with; "+instead" replaces the checkpoint's own schedule. `target_len` (tokens) is for presets that derive their
    values from it. `trained_len` (tokens) corrects the trained length of the config. `lift_windows` extends windowed
    layers too. `mode` is "tables" (a static schedule goes into the model's rotary modules) or "attention" (ours
    replaces the model's); None takes tables where they can express the extension.

    Everything is checked before the model changes. The same extension twice returns the same handle.
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
    plan = _plan(host, asked, lift_windows)
    mode, reason, undo = _apply(Modes(host, plan.base), plan.extension, plan.layers, target_len, mode)
    with undo:
        parts = (ExitStack(), mode, reason, asked.trained_len, plan.own_schedule, target_len)
        handle = Handle(host, plan.extension, tuple(plan.layers), lift_windows, *parts)
        undo.enter_context(_bind(handle, model))
        handle.undo.enter_context(undo.pop_all())
    return handle


def _bind(handle: Handle, model: nn.Module) -> ExitStack:
    """Bind the handle to its model, and what runs or saves the model or its adapters to the handle."""
    host = handle.model
    base, store = called_base(host, modules_of(handle.layers)), partial(store_unchecked, handle)
    with ExitStack() as undo:
        undo.enter_context(attach_handle(handle, base))
        undo.enter_context(replace_methods(host, store, ours=handle.mode == ATTENTION))
        undo.enter_context(adapters_storing(host, base, model, store))
        undo.callback(base.register_forward_pre_hook(handle.forwards.begin, prepend=True).remove)
        undo.callback(base.register_forward_hook(handle.forwards.end, always_call=True).remove)
        return undo.pop_all()


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
    layers = probe(host) if present is None else [layer.probed for layer in present.layers]
    trained_len = corrected_len(host) if trained_len is None else trained_len
    facts = [facts_of(host, layer, len(layers), trained_len) for layer in layers]
    line = read_line(extension) if isinstance(extension, str) else extension
    wanted = _build(line, facts[main_layer(layers)], target_len)
    return _Asked(line, wanted, layers, facts, trained_len)


def _plan(host: PreTrainedModel, asked: _Asked, lift_windows: bool) -> Plan:
    wanted, layers, facts = asked.extension, asked.layers, asked.facts
    require_steady(layers, wanted)
    require_rotation(layers, wanted, facts)
    require_scaled_once(host.config.get_text_config(), layers, wanted, facts)
    if isinstance(asked.line, Line):  # an Extension object was built on purpose, or stored while it was in force
        require_not_restated(host.config.get_text_config(), asked.line)
    if wanted.instead:
        layers = with_plain_scalings(host, layers)
    base, changed = attach_layers(layers, facts, Extension()), attach_layers(layers, facts, wanted, lift_windows)
    present = own_schedule_of(host.config.get_text_config(), layers, facts)
    return Plan(wanted, base, changed, what_happens(present, wanted, asked.main, layers))


@contextmanager
def extended(model: nn.Module, extension: Extension | str, **kwargs: Any) -> Iterator[Handle]:
    """`extend` for the length of a block.

        with rw.extended(model, "rerope+log_n") as handle:
            model.generate(ids, max_new_tokens=20)

    `kwargs` are those of `extend`. An extension that the model was under before the block stays.
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
        raise InvalidValue("target_len", "a whole number of tokens", target_len)
    if isinstance(extension, Line):
        ground = facts.undone if extension.instead else facts
        require_beyond("target_len", target_len, ground.trained_len)  # before a preset computes with it
        extension = extension.build_for(facts, target_len)
    if not isinstance(extension, Extension):
        raise InvalidValue("extension", "an Extension, or a text such as yarn:factor=4", extension)
    require_beyond("target_len", target_len, extension.ground(facts).trained_len)
    for slot, remedy in (("decoding", "use rw.nbce_generate"), ("surgery", "convert the model first (rw.convert)")):
        if getattr(extension, slot):
            name = extension.specs[slot][0].name
            raise DoesNotFit.because(slot, f"extend cannot apply {name}, a method of {slot}", remedy=remedy)
    extension.check_against(facts)
    return extension


def require_beyond(field: str, target_len: int | None, trained_len: int) -> None:
    """Refuse a target length within the trained length."""
    if target_len is not None and target_len <= trained_len:
        rule = f"above the trained length ({trained_len})"
        raise DoesNotFit(field, rule, target_len, remedy="up to that length the model needs no extension")


def require_steady(layers: Sequence[ProbedLayer], extension: Extension) -> None:
    """Refuse to keep a schedule of the checkpoint that changes with the length of the whole batch."""
    varies = any(layer.varies and layer.long_table is None for layer in layers)
    if varies and extension.frequencies is None and not extension.instead:
        sentence = (
            "the checkpoint's schedule (dynamic) changes with the longest text of a batch, so it must be replaced"
        )
        remedy = "replace it by dynamic_ntk, which changes row by row, or by another schedule"
        raise DoesNotFit.because("frequencies", sentence, remedy=remedy)


def require_rotation(layers: Sequence[ProbedLayer], extension: Extension, facts: Sequence[Facts]) -> None:
    """Refuse what changes only the rotation, on a model without any, or one whose rotation was dropped."""
    dropped = any(layer.stands_still for layer in layers)
    if any(layer.rotating and not layer.stands_still for layer in layers) or (dropped and extension.instead):
        return
    in_force = [extension.at_layer(depth, known) for depth, known in enumerate(facts)]
    biased = any(local.biases for local in in_force)
    stated = extension.frequencies
    # Biases are written with the schedule that rotates nothing; a table that stands still may be left or stated again.
    keeps = (isinstance(stated, NoPE) and biased) or (isinstance(stated, NoPE | RoPE) and dropped)
    rotation_only: dict[str, Spec | None] = {"frequencies": None if keeps else stated}
    if not biased and all(reach_retention(local.spans).everything for local in in_force):
        rotation_only |= {"reach": extension.reach, "positions": extension.positions}
    for slot, spec in rotation_only.items():
        if spec is not None:
            sentence = f"{spec.name} changes how queries and keys are rotated, and no layer of this model rotates them"
            again = "; +instead rotates again" if dropped else ""
            raise DoesNotFit.because(slot, sentence, remedy=f"log_n, windows, sinks and biases need no rotation{again}")


def _apply(
    modes: Modes, extension: Extension, layers: list[ExtendedLayer], target_len: int | None, mode: str | None
) -> tuple[str, str, ExitStack]:
    """Apply the extension: the mode that was used, why not tables, and what undoes it."""
    chosen, reason = modes.chosen(extension, layers, target_len, mode)
    if chosen == TABLES:
        try:
            return TABLES, "", apply_tables(modes.host, extension, layers, target_len)
        except DoesNotFit as hindrance:
            if mode == TABLES:
                raise
            reason = str(hindrance)
            modes.require(ATTENTION)
    return ATTENTION, reason, apply_attention(modes.host, extension, layers)
