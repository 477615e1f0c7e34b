"""The way in that costs nothing: a static schedule written into the model's own rotary modules, attention untouched.

A table of frequencies takes the place of the module's own, and what makes transformers compute it anew (dynamic,
longrope) is switched off with it; a constant scale goes into what each attention module multiplies its logits by, so
that it reaches dimensions and layers that do not turn. Where names or shapes are others than transformers' usual ones,
or one table serves layers that are to differ, this way is refused and attention of ours is the other one.
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
from ropewalk.extension import Extension
from ropewalk.hf.probe.rotary import ProbedLayer
from ropewalk.hf.runtime.layer import ExtendedLayer
from ropewalk.hf.runtime.static_schedule import constant_scale, static_table

# transformers forms angles in float32, whose steps grow with the position. Up to here an angle is rounded by 2^-8 at
# most, a step of bfloat16 near 1; for longer texts attention of ours forms angles in float64. A model that was trained
# to more was trained with such angles.
FURTHEST = 2**17
CLOSE = 1e-5  # relative: what is read back from cos and sin in float32


class TableSlot(NamedTuple):
    """A table in a rotary module that may have one for each type of layer."""

    module: nn.Module
    prefix: str


class TableContent(NamedTuple):
    """What stands in it, and what cos and sin are multiplied by."""

    inv_freq: tuple[float, ...]
    temperature: float = 1.0


class TableEdit(NamedTuple):
    """All that changes in a model: tables, and what attention modules multiply their logits by."""

    tables: dict[TableSlot, TableContent]
    scalings: dict[nn.Module, float]


def identity_edit(bare: Sequence[ExtendedLayer]) -> TableEdit:
    """Every table as it is, formed by us: under this the model's logits must stay what they are."""
    turning = [own for own in bare if own.probed.rotating]
    return TableEdit({_place(own.probed): _content(own) for own in turning}, {})


def edit_for(extension: Extension, layers: Sequence[ExtendedLayer], target_len: int | None) -> TableEdit:
    """What puts these layers under this extension, or a refusal that says why tables cannot."""
    if extension.positions is not None:
        raise DoesNotFit("positions", "as they come where a table is to say all", extension.positions.name)
    _require_near(layers, target_len)
    tables: dict[TableSlot, TableContent | None] = {}
    scalings: dict[nn.Module, float] = {}
    for own in layers:
        if own.probed.window is not None and not own.keeps_window:
            raise DoesNotFit("windows", "the model's own where its attention is kept", "lifted")
        content, scale = (None, 1.0) if own.left_alone else _wanted(extension, own)
        if own.probed.rotating:
            place = _place(own.probed)
            if tables.setdefault(place, content) != content:
                rule = f"under the same table as the layers that share {type(place.module).__name__}"
                raise DoesNotFit(f"layer {own.depth}", rule, "another")
        if scale != 1:
            scalings[own.probed.module] = _require_stated(own) * scale
    return TableEdit({place: content for place, content in tables.items() if content is not None}, scalings)


def write(wanted: TableEdit) -> ExitStack:
    """Write it, with the way back."""
    with ExitStack() as undo:
        for module in {place.module for place in wanted.tables}:
            own = {place.prefix: each.inv_freq for place, each in wanted.tables.items() if place.module is module}
            tables = {f"{prefix}inv_freq": torch.tensor(each, dtype=torch.float32) for prefix, each in own.items()}
            _write_tables(module, tables, undo)
        for place, content in wanted.tables.items():
            _settle(place, content, undo)
        for module, scaling in wanted.scalings.items():
            _put(module.__dict__, "scaling", scaling, undo)
        return undo.pop_all()


def require_written(wanted: TableEdit, layers: Sequence[ProbedLayer]) -> None:
    """Refuse a model that, asked again, does not do what was written."""
    for index, layer in enumerate(layers):
        content = wanted.tables.get(_place(layer)) if layer.rotating else None
        told = content is None or (not layer.varies and _alike(layer, content))
        scaling = wanted.scalings.get(layer.module, layer.scaling)
        if not told or not math.isclose(layer.scaling, scaling, rel_tol=CLOSE):
            raise DoesNotFit(f"layer {index}", "one that follows the tables of its rotary module", "another table")


def _require_near(layers: Sequence[ExtendedLayer], target_len: int | None) -> None:
    """Refuse a length at which angles in float32 are no longer what they should be."""
    stretches = [own.extension.theta.stretch for own in layers if not own.left_alone and own.probed.rotating]
    stated = [each for each in stretches if math.isfinite(each)]  # others say no length; the trained one counts
    known = layers[0].facts.trained_len
    length, furthest = target_len or round(known * max(stated, default=1.0)), max(FURTHEST, known)
    if length > furthest:
        raise DoesNotFit("target_len", f"at most {furthest}, as far as angles in float32 carry", length)


def _wanted(extension: Extension, own: ExtendedLayer) -> tuple[TableContent | None, float]:
    """The table of one layer, nothing where it keeps its own, and the constant that its scaling is multiplied by."""
    said = replace(own.extension, reach=None) if own.keeps_window else own.extension
    static_table(said, own.facts)
    stated = extension.at_layer(own.depth, own.facts)
    states = (stated.frequencies is not None or stated.instead) and own.probed.rotating
    scale = constant_scale(said, own.facts) * own.scaling / own.probed.scaling
    return _content(own) if states else None, scale


def _content(own: ExtendedLayer) -> TableContent:
    return TableContent(tuple(own.extension.theta.table(own.facts, 1).inv_freq.tolist()), own.temperature)


def _place(layer: ProbedLayer) -> TableSlot:
    """Where the layer's table stands, under the names that transformers gives to it."""
    module, name = layer.rotary, f"{layer.layer_type}_inv_freq"
    if module is None:
        raise DoesNotFit("rotary module", "known by its answers", None)
    name = name if name in module._buffers else "inv_freq"
    own, size = module._buffers.get(name), (layer.rotating // 2,)
    if own is None or own.shape != size or name not in module._non_persistent_buffers_set:  # which are not saved
        rule = f"one with a table inv_freq of {size[0]} pairs, apart from the weights"
        raise DoesNotFit("rotary module", rule, f"{type(module).__name__} {None if own is None else tuple(own.shape)}")
    return TableSlot(module, name.removesuffix("inv_freq"))


def _require_stated(own: ExtendedLayer) -> float:
    """What the attention module multiplies its logits by."""
    stated = own.probed.module.__dict__.get("scaling")
    if not isinstance(stated, float) or not math.isclose(stated, own.probed.scaling, rel_tol=CLOSE):
        raise DoesNotFit(f"layer {own.depth}", "one that states its scaling, for a temperature to go into", stated)
    return stated


def _write_tables(module: nn.Module, tables: dict[str, Tensor], undo: ExitStack) -> None:
    """Tables by their names, in float32 whatever the model is cast to."""
    for name, table in tables.items():
        before: Any = module._buffers[name]
        undo.callback(_put_back, module, name, before)
        module._buffers[name] = table.to(before.device)
    apply: Callable[..., nn.Module] = type(module)._apply
    module.__dict__["_apply"] = partial(_moved, module, apply, tables)
    undo.callback(module.__dict__.pop, "_apply")


def _moved(module: nn.Module, apply: Callable[..., nn.Module], tables: dict[str, Tensor], *args: Any) -> nn.Module:
    """The module moved or cast as asked, but for its tables, which are moved alone: half precision would spoil them."""
    apply(module, *args)
    for name, table in tables.items():
        now: Any = module._buffers[name]
        module._buffers[name] = table.to(now.device)
    return module


def _put_back(module: nn.Module, name: str, before: Tensor) -> None:
    now: Any = module._buffers[name]
    module._buffers[name] = before.to(now.device)


def _settle(place: TableSlot, content: TableContent, undo: ExitStack) -> None:
    """What cos and sin are multiplied by, and a type of schedule that computes nothing anew."""
    own = place.module.__dict__
    name = f"{place.prefix}attention_scaling"
    if name in own and own[name] != content.temperature:
        _put(own, name, content.temperature, undo)
    kinds = own.get("rope_type")
    if isinstance(kinds, dict):
        _put(own, "rope_type", {**kinds, place.prefix[:-1]: "default"}, undo)
    elif kinds is not None:
        _put(own, "rope_type", "default", undo)


def _put(holder: dict[str, Any], name: str, value: Any, undo: ExitStack) -> None:
    undo.callback(holder.__setitem__, name, holder[name])
    holder[name] = value


def _alike(layer: ProbedLayer, content: TableContent) -> bool:
    measured, wanted = (torch.tensor(each, dtype=torch.float64) for each in (layer.inv_freq, content.inv_freq))
    close = math.isclose(layer.temperature, content.temperature, rel_tol=CLOSE)
    return close and bool(((measured - wanted).abs() <= CLOSE * wanted.abs() + 1e-9).all())
