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

from ropewalk.errors import DoesNotFit
from ropewalk.extension.extension import Extension
from ropewalk.hf.probe.inline_rotation import sinusoid
from ropewalk.hf.probe.probed_layer import ProbedLayer
from ropewalk.hf.probe.rotation import PositionTable
from ropewalk.hf.runtime.layer import ExtendedLayer, constant_scale, is_lifted, static_table
from ropewalk.methods.frequencies import NoPE
from ropewalk.methods.frequencies.signature import unwrap

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
    temperature: float = 1.0


class TableEdit(NamedTuple):
    """All that changes in a model: tables, and the factors that attention modules apply to their logits."""

    tables: dict[TableSlot, TableContent]
    scalings: dict[nn.Module, float]
    rows: int = 0  # of tables by position, at least


def identity_edit(base: Sequence[ExtendedLayer]) -> TableEdit:
    """Every table as it is, computed by us: with these the model's logits must not change."""
    rotating = [layer for layer in base if layer.probed.rotating]
    return TableEdit({table_slot(layer.probed): _content(layer, 1.0) for layer in rotating}, {})


def edit_for(extension: Extension, layers: Sequence[ExtendedLayer], target_len: int | None) -> TableEdit:
    """The edit that puts these layers under this extension, or a refusal with the reason."""
    if extension.positions is not None:
        raise DoesNotFit.because("positions", f"{extension.positions.name} (positions) needs Ropewalk's attention")
    length = _require_near(layers, target_len)
    tables: dict[TableSlot, TableContent | None] = {}
    scalings: dict[nn.Module, float] = {}
    for layer in layers:
        if is_lifted(layer):
            raise DoesNotFit.because("windows", "lifted windows need Ropewalk's attention")
        content, scale = (None, 1.0) if layer.left_alone else _new_content(extension, layer)
        if scale != 1 and layer.probed.inline:
            content, scale = _with_scale(layer, content or _content(layer, 1.0), scale), 1.0
        if layer.probed.rotating:
            place = table_slot(layer.probed)
            if tables.setdefault(place, content) != content:
                rule = f"under the same table as the other layers that share {type(place.module).__name__}"
                raise DoesNotFit(f"layer {layer.depth}", rule, "another")
        if scale != 1:
            scalings[layer.probed.module] = _scaling_of(layer) * scale
    return TableEdit({place: content for place, content in tables.items() if content is not None}, scalings, length)


def chooser_edit(extension: Extension, layers: Sequence[ExtendedLayer]) -> TableEdit | None:
    """The tables for what chooses keys by itself, under our attention: those of the schedule, where it is static.

    None where the tables cannot hold it, or where it changes nothing: the choice is made by the model's own tables. So
    it is where nothing rotates, since equal tokens would then tie, and the choice among them would be anyone's.
    """
    if isinstance(unwrap(extension.frequencies).core, NoPE):
        return None
    alone = [layer._replace(extension=_rotation_of(layer.extension)) for layer in layers]
    try:
        tables = edit_for(_rotation_of(extension), alone, None).tables
    except DoesNotFit:
        return None
    return TableEdit(tables, {}) if tables else None


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


def require_written(wanted: TableEdit, layers: Sequence[ProbedLayer]) -> None:
    """Refuse a model that does not follow what was written, by a new probe."""
    for index, layer in enumerate(layers):
        content = wanted.tables.get(table_slot(layer)) if layer.rotating else None
        follows = content is None or (not layer.varies and _alike(layer, content))
        scaling = wanted.scalings.get(layer.module, layer.scaling)
        if not follows or not math.isclose(layer.scaling, scaling, rel_tol=TABLE_RTOL):
            raise DoesNotFit.because("layer", f"layer {index} does not follow the tables of its rotary module")


def _require_near(layers: Sequence[ExtendedLayer], target_len: int | None) -> int:
    """The length to reach; refused where angles in float32 are too coarse."""
    stretches = [layer.extension.theta.stretch for layer in layers if not layer.left_alone and layer.probed.rotating]
    stated = [stretch for stretch in stretches if math.isfinite(stretch)]
    known = layers[0].facts.trained_len  # counts where a stretch is infinite, which states no target length
    length, furthest = target_len or round(known * max(stated, default=1.0)), max(LONGEST_IN_TABLES, known)
    if length > furthest:
        raise DoesNotFit("target_len", f"at most {furthest} in mode tables, whose angles are float32", length)
    return length


def _new_content(extension: Extension, layer: ExtendedLayer) -> tuple[TableContent | None, float]:
    """The new table of one layer (None: it keeps its own), and the factor of its scaling."""
    local = replace(layer.extension, reach=None) if layer.keeps_window else layer.extension
    static_table(local, layer.facts)
    stated = extension.at_layer(layer.depth, layer.facts)
    scale = constant_scale(local, layer.facts)
    changes = (stated.frequencies is not None or stated.instead or scale.rotation != 1) and layer.probed.rotating
    content = _content(layer, scale.rotation) if changes else None
    return content, scale.logits * layer.scaling / layer.probed.scaling


def _content(layer: ExtendedLayer, rotation: float) -> TableContent:
    """The layer's table; `rotation` is the factor of the products of queries and keys that cos and sin have."""
    table = tuple(layer.extension.theta.table(layer.facts, 1).inv_freq.tolist())
    return TableContent(table, layer.temperature * math.sqrt(rotation))


def table_slot(layer: ProbedLayer) -> TableSlot:
    """The slot of the layer's table, by transformers' names."""
    module, name = layer.rotary, f"{layer.layer_type}_inv_freq"
    if module is None:
        raise DoesNotFit.because("rotary module", "no rotary module is known for a layer that rotates")
    if layer.positions is not None:
        return TableSlot(module, "", layer.positions)
    name = name if name in module._buffers else "inv_freq"
    table, size = module._buffers.get(name), (layer.rotating // 2,)
    if table is None or table.shape != size or name not in module._non_persistent_buffers_set:
        rule = f"one with a table inv_freq of {size[0]} pairs, apart from the weights"
        raise DoesNotFit(
            "rotary module", rule, f"{type(module).__name__} {None if table is None else tuple(table.shape)}"
        )
    return TableSlot(module, name.removesuffix("inv_freq"))


def _with_scale(layer: ExtendedLayer, content: TableContent, scale: float) -> TableContent:
    """A factor of the logits in cos and sin, where all dimensions rotate."""
    if layer.probed.rotating < layer.probed.head_dim:
        rule = "1 where some dimensions do not rotate, since cos and sin alone can carry it"
        raise DoesNotFit("temperature", rule, scale)
    return content._replace(temperature=content.temperature * math.sqrt(scale))


def _scaling_of(layer: ExtendedLayer) -> float:
    """The factor that the attention module applies to its logits."""
    stated = layer.probed.module.__dict__.get("scaling")
    if not isinstance(stated, float) or not math.isclose(stated, layer.probed.scaling, rel_tol=TABLE_RTOL):
        raise DoesNotFit(f"layer {layer.depth}", "one with an attribute `scaling`, to hold a temperature", stated)
    return stated


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
