"""Mode tables: a static schedule written into the model's own rotary modules. It costs nothing at run time.

Our table of frequencies replaces the module's, and types that recompute it (dynamic, longrope) are switched off. A
temperature of the rotation goes into cos and sin. A constant scale of whole logits goes into the factor that an
attention module applies to them, so that it also reaches dimensions and layers that do not rotate. Modules with unusual
names or shapes, and layers that share a table but must differ, are refused: mode attention remains.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from ropewalk.errors import DoesNotFit
from ropewalk.extension.extension import Extension
from ropewalk.extension.static import constant_scale, why_not_constant, why_not_static
from ropewalk.hf.probe.host import called_base
from ropewalk.hf.probe.inline_rotation import sinusoid
from ropewalk.hf.probe.probe import probe
from ropewalk.hf.probe.probed_layer import ProbedLayer
from ropewalk.hf.probe.rotation import PositionTable
from ropewalk.hf.runtime.caches import Owner
from ropewalk.hf.runtime.hooks import check_position_ids
from ropewalk.hf.runtime.layer import ExtendedLayer, basis_of, is_lifted, modules_of
from ropewalk.methods.frequencies import NoPE
from ropewalk.methods.frequencies.frequencies import unwrap

# transformers computes angles in float32, whose steps grow with the position. Up to here an angle is rounded by 2^-8
# at most, a step of bfloat16 near 1; for longer texts our attention computes angles in float64. A model that was
# trained to more was trained with such angles.
LONGEST_IN_TABLES = 2**17
TABLE_RTOL = 1e-5  # relative: what is read back from cos and sin in float32


class TableSlot(NamedTuple):
    """A table of a rotary module, which may have one for each type of layer."""

    module: nn.Module
    prefix: str
    positions: PositionTable | None = None  # a buffer of sin and cos by position in place of frequencies


class TableContent(NamedTuple):
    """The frequencies in a table, and the factor of cos and sin."""

    inv_freq: tuple[float, ...]
    temperature: float


class TableEdit(NamedTuple):
    """All that changes in a model: tables, and the factors that attention modules apply to their logits."""

    tables: dict[TableSlot, TableContent]
    scalings: dict[nn.Module, float]
    rows: int = 0  # of tables by position, at least


def identity_edit(base: Sequence[ExtendedLayer]) -> TableEdit:
    """Every table as it is, computed by us: with these the model's logits must not change."""
    rotating = [layer for layer in base if layer.probed.rotating]
    return TableEdit({table_slot(layer.probed): _content(layer, 1.0) for layer in rotating}, {})


def edit_for(extension: Extension, layers: Sequence[ExtendedLayer], target_len: int | None) -> TableEdit | DoesNotFit:
    """The edit that puts these layers under this extension, or the reason why tables cannot hold it."""
    if extension.positions is not None:
        return DoesNotFit.because("positions", f"{extension.positions.name} (positions) needs Ropewalk's attention")
    length, furthest = _length(layers, target_len), max(LONGEST_IN_TABLES, layers[0].facts.trained_len)
    if length > furthest:
        return DoesNotFit("target_len", f"at most {furthest} in mode tables, whose angles are float32", length)
    contents: dict[TableSlot, TableContent | None] = {}
    scalings: dict[nn.Module, float] = {}
    for layer in layers:
        reason = _why_not_held(extension, layer)
        if reason is not None:
            return reason
        content, scale = (None, 1.0) if layer.left_alone else _new_content(extension, layer)
        if scale != 1 and layer.probed.inline:  # in cos and sin, since all dimensions rotate
            held = content or _content(layer, 1.0)
            content, scale = held._replace(temperature=held.temperature * math.sqrt(scale)), 1.0
        if layer.probed.rotating:
            slot = find_slot(layer.probed)
            if isinstance(slot, DoesNotFit):
                return slot
            if contents.setdefault(slot, content) != content:
                rule = f"under the same table as the other layers that share {type(slot.module).__name__}"
                return DoesNotFit(f"layer {layer.depth}", rule, "another")
        if scale != 1:
            stated = layer.probed.module.__dict__.get("scaling")
            if not isinstance(stated, float) or not math.isclose(stated, layer.probed.scaling, rel_tol=TABLE_RTOL):
                rule = "one with an attribute `scaling`, to hold a temperature"
                return DoesNotFit(f"layer {layer.depth}", rule, stated)
            scalings[layer.probed.module] = stated * scale
    return TableEdit({slot: content for slot, content in contents.items() if content is not None}, scalings, length)


def chooser_edit(extension: Extension, layers: Sequence[ExtendedLayer]) -> TableEdit | None:
    """The tables for what chooses keys by itself, under our attention: those of the schedule, where it is static.

    None where the tables cannot hold it, or where it changes nothing: the choice is made by the model's own tables. So
    it is where nothing rotates, since equal tokens would then tie, and the choice among them would be anyone's.
    """
    if isinstance(unwrap(extension.frequencies).core, NoPE):
        return None
    alone = [layer._replace(extension=_rotation_of(layer.extension)) for layer in layers]
    edit = edit_for(_rotation_of(extension), alone, None)
    return None if isinstance(edit, DoesNotFit) or not edit.tables else TableEdit(edit.tables, {})


def _rotation_of(extension: Extension) -> Extension:
    """What an extension does to the rotation alone: its schedule and the temperatures of cos and sin."""
    warmth = tuple(spec for spec in extension.scales if spec.of_rotation)
    return replace(extension, reach=None, biases=(), scales=warmth, positions=None)


def write(wanted: TableEdit) -> ExitStack:
    """Write it; closing what is returned undoes it."""
    with ExitStack() as undo:
        for module in {place.module for place in wanted.tables}:
            slots = [slot for slot in wanted.tables if slot.module is module]
            tables = dict(_numbers(slot, wanted.tables[slot], wanted.rows) for slot in slots)
            _write_tables(module, tables, undo)
        for place, content in wanted.tables.items():
            _settle(place, content, undo)
        for module, scaling in wanted.scalings.items():
            _put(module.__dict__, "scaling", scaling, undo)
        return undo.pop_all()


def _numbers(slot: TableSlot, content: TableContent, rows: int) -> tuple[str, Tensor]:
    """The name of a table's buffer, and its numbers."""
    positions = slot.positions
    if positions is None:
        return f"{slot.prefix}inv_freq", torch.tensor(content.inv_freq, dtype=torch.float32)
    return positions.name, sinusoid(positions, content.inv_freq, content.temperature, max(rows, positions.rows))


def why_not_followed(wanted: TableEdit, layers: Sequence[ProbedLayer]) -> DoesNotFit | None:
    """Which layer does not follow what was written, by a new probe; None where all do."""
    for index, layer in enumerate(layers):
        content = wanted.tables.get(table_slot(layer)) if layer.rotating else None
        follows = content is None or (not layer.varies and _alike(layer, content))
        scaling = wanted.scalings.get(layer.module, layer.scaling)
        if not follows or not math.isclose(layer.scaling, scaling, rel_tol=TABLE_RTOL):
            return DoesNotFit.because("layer", f"layer {index} does not follow the tables of its rotary module")
    return None


def apply_tables(
    host: PreTrainedModel, extension: Extension, layers: Sequence[ExtendedLayer], edit: TableEdit
) -> ExitStack | DoesNotFit:
    """Write the schedule into the model's rotary modules, check it by a probe, and watch the model's caches.

    The reason where the model does not follow; then nothing has changed.
    """
    with ExitStack() as undo:
        undo.enter_context(write(edit))
        reason = why_not_followed(edit, probe(host))
        if reason is not None:
            return reason
        base, owner = called_base(host, modules_of(layers)), Owner(extension, "tables", basis_of(layers))
        undo.callback(base.register_forward_pre_hook(check_position_ids, with_kwargs=True).remove)
        undo.callback(base.register_forward_pre_hook(owner.before, with_kwargs=True).remove)
        undo.callback(base.register_forward_hook(owner.after).remove)
        undo.callback(owner.release)
        return undo.pop_all()


def _length(layers: Sequence[ExtendedLayer], target_len: int | None) -> int:
    """The length to reach; a stretch that is infinite states none, and the trained length counts."""
    stretches = [
        layer.extension.frequencies_or_rope.stretch
        for layer in layers
        if not layer.left_alone and layer.probed.rotating
    ]
    stated = [stretch for stretch in stretches if math.isfinite(stretch)]
    return target_len or round(layers[0].facts.trained_len * max(stated, default=1.0))


def _why_not_held(extension: Extension, layer: ExtendedLayer) -> DoesNotFit | None:
    """Why one layer's table cannot hold its extension, whatever else shares that table; None where it can."""
    if is_lifted(layer):
        return DoesNotFit.because("windows", "lifted windows need Ropewalk's attention")
    if layer.left_alone:
        return None
    local = _without_window(layer)
    reason = why_not_static(local, layer.facts) or why_not_constant(local, layer.facts)
    if reason is not None or not layer.probed.inline or layer.probed.rotating == layer.probed.head_dim:
        return reason
    scale = _new_content(extension, layer)[1]
    rule = "1 where some dimensions do not rotate, since cos and sin alone can carry it"
    return DoesNotFit("temperature", rule, scale) if scale != 1 else None


def _new_content(extension: Extension, layer: ExtendedLayer) -> tuple[TableContent | None, float]:
    """The new table of one layer (None: it keeps its own), and the factor of its scaling."""
    stated = extension.at_layer(layer.depth, layer.facts)
    scale = constant_scale(_without_window(layer), layer.facts)
    changes = (
        stated.frequencies is not None or stated.replaces_scaling or scale.rotation != 1
    ) and layer.probed.rotating
    content = _content(layer, scale.rotation) if changes else None
    return content, scale.logits * layer.scaling / layer.probed.scaling


def _without_window(layer: ExtendedLayer) -> Extension:
    """The extension of a layer without the window that it had, and keeps."""
    return replace(layer.extension, reach=None) if layer.keeps_window else layer.extension


def _content(layer: ExtendedLayer, rotation: float) -> TableContent:
    """The layer's table; `rotation` is the factor of the products of queries and keys that cos and sin have."""
    table = tuple(layer.extension.frequencies_or_rope.table(layer.facts, 1).inv_freq.tolist())
    return TableContent(table, layer.temperature * math.sqrt(rotation))


def table_slot(layer: ProbedLayer) -> TableSlot:
    """The slot of a layer's table, or a refusal."""
    slot = find_slot(layer)
    if isinstance(slot, DoesNotFit):
        raise slot
    return slot


def find_slot(layer: ProbedLayer) -> TableSlot | DoesNotFit:
    """The slot of a layer's table, by transformers' names, or the reason why there is none."""
    module, name = layer.rotary, f"{layer.layer_type}_inv_freq"
    if module is None:
        return DoesNotFit.because("rotary module", "no rotary module is known for a layer that rotates")
    if layer.positions is not None:
        return TableSlot(module, "", layer.positions)
    name = name if name in module._buffers else "inv_freq"
    table, pairs = module._buffers.get(name), layer.rotating // 2
    if table is None or table.shape != (pairs,) or name not in module._non_persistent_buffers_set:
        got = f"{type(module).__name__} {None if table is None else tuple(table.shape)}"
        return DoesNotFit("rotary module", f"one with a table inv_freq of {pairs} pairs, apart from the weights", got)
    return TableSlot(module, name.removesuffix("inv_freq"))


def _write_tables(module: nn.Module, tables: dict[str, Tensor], undo: ExitStack) -> None:
    """Write tables by their names; they stay float32 when the model is cast."""
    for name, table in tables.items():
        before: Any = module._buffers[name]
        undo.callback(_put_back, module, name, before, before.clone())
        module._buffers[name] = table.to(before.device)
    apply: Callable[..., nn.Module] = type(module)._apply
    module.__dict__["_apply"] = partial(_move, module, apply, tables)
    undo.callback(module.__dict__.pop, "_apply")


def _move(module: nn.Module, apply: Callable[..., nn.Module], tables: dict[str, Tensor], *args: Any) -> nn.Module:
    """Move or cast the module, but only move its tables: half precision would ruin them."""
    apply(module, *args)
    for name, table in tables.items():
        now: Any = module._buffers[name]
        module._buffers[name] = table.to(now.device)
    return module


def _put_back(module: nn.Module, name: str, before: Tensor, numbers: Tensor) -> None:
    """The table from before. compressed-tensors copies what is assigned into the table that is there."""
    now: Any = module._buffers[name]
    module._buffers[name] = (numbers if now is before else before).to(now.device)


def _settle(place: TableSlot, content: TableContent, undo: ExitStack) -> None:
    """Set the factor of cos and sin, and a type of schedule that recomputes nothing."""
    if place.positions is not None:
        return
    attributes = place.module.__dict__
    name = f"{place.prefix}attention_scaling"
    if name in attributes and attributes[name] != content.temperature:
        _put(attributes, name, content.temperature, undo)
    kinds = attributes.get("rope_type")
    if isinstance(kinds, dict):
        _put(attributes, "rope_type", {**kinds, place.prefix[:-1]: "default"}, undo)
    elif kinds is not None:
        _put(attributes, "rope_type", "default", undo)


def _put(holder: dict[str, Any], name: str, value: Any, undo: ExitStack) -> None:
    undo.callback(holder.__setitem__, name, holder[name])
    holder[name] = value


def _alike(layer: ProbedLayer, content: TableContent) -> bool:
    measured, expected = (torch.tensor(values, dtype=torch.float64) for values in (layer.inv_freq, content.inv_freq))
    close = math.isclose(layer.temperature, content.temperature, rel_tol=TABLE_RTOL)
    return close and bool(((measured - expected).abs() <= TABLE_RTOL * expected.abs() + 1e-9).all())
