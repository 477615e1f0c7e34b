"""Models whose attention is written into their layers, where no query is seen: what they rotate by, and how much.

Heads and layers are those of the config; the rotation is what the rotary module answers, or a table of sin and cos for
each position, found by its numbers. Static schedules go into these, and nothing else is possible.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from ropewalk.errors import DoesNotFit
from ropewalk.hf.probe.capture import fill_output
from ropewalk.hf.probe.facts import USUAL_BASE
from ropewalk.hf.probe.probed_layer import CachedLayer, GrownCache, ProbedLayer
from ropewalk.hf.probe.rotation import (
    PAST_EVERY_SWITCH,
    LongTable,
    Measured,
    PositionTable,
    RotaryCall,
    layer_type,
    layout,
    long_table,
    measure_table,
)

SINE_ATOL = 1e-3  # of sines in float32, whose angles are rounded
SIZES = ("num_hidden_layers", "num_attention_heads", "hidden_size")


class InlineRotation(NamedTuple):
    """What one layer rotates by."""

    module: nn.Module
    dims: int
    interleaved: bool | None
    inv_freq: tuple[float, ...]
    temperature: float = 1.0
    varies: bool = False
    long_table: LongTable | None = None
    layer_type: str | None = None
    positions: PositionTable | None = None


def inline_layers(
    model: PreTrainedModel, ids: Tensor, calls: Sequence[RotaryCall], cache: GrownCache | None
) -> list[ProbedLayer]:
    """Every layer, or a refusal with the reason."""
    reason = f"{type(model).__name__} does not use transformers' attention interface"
    config = model.config.get_text_config()
    layers, heads, width = (getattr(config, name, None) for name in SIZES)
    rotations = [_module_rotation(call) for call in calls] or [
        _table_rotation(*entry) for entry in position_tables(model)
    ]
    rotations = rotations * layers if layers and len(rotations) == 1 else rotations
    if not rotations or not (layers and heads and width) or len(rotations) != layers:
        raise DoesNotFit.because("model", reason)
    different = {rotation.module: rotation for rotation in rotations}.values()
    if not all(_is_used(model, ids, rotation) for rotation in different):
        raise DoesNotFit.because("model", reason)
    if window := _window(config):
        raise DoesNotFit.because("model", f"{reason}, and its config has a window ({window}), which is then not seen")
    head_dim = getattr(config, "head_dim", None) or width // heads
    itemsize = model.dtype.itemsize
    return [
        _layer(rotation, heads, head_dim, place, itemsize, reason)
        for rotation, place in zip(rotations, _places(cache, layers), strict=True)
    ]


def _layer(
    rotation: InlineRotation, heads: int, head_dim: int, place: CachedLayer | None, itemsize: int, reason: str
) -> ProbedLayer:
    held = place.growth // (2 * head_dim * itemsize) if place else 0
    return ProbedLayer(
        module=rotation.module,
        heads=heads,
        groups=held if held and heads % held == 0 else heads,
        head_dim=head_dim,
        value_dim=head_dim,
        scaling=head_dim**-0.5,
        rotating=rotation.dims,
        interleaved=rotation.interleaved,
        inv_freq=rotation.inv_freq,
        temperature=rotation.temperature,
        varies=rotation.varies,
        long_table=rotation.long_table,
        rotary=rotation.module,
        layer_type=rotation.layer_type,
        positions=rotation.positions,
        cached=place,
        inline=reason,
    )


def _places(cache: GrownCache | None, layers: int) -> list[CachedLayer | None]:
    if cache is None or not cache.usual or len(cache.growth) != layers:
        return [None] * layers
    return [CachedLayer(slot, slot, growth, cache.fixed) for slot, growth in enumerate(cache.growth)]


def _is_used(model: PreTrainedModel, ids: Tensor, rotation: InlineRotation) -> bool:
    """Whether NaN in the rotation reaches the answer."""
    module, table = rotation.module, rotation.positions
    before = module._buffers[table.name] if table else None
    if table and before is not None:
        module._buffers[table.name] = torch.full_like(before, math.nan)
    hook = None if table else module.register_forward_hook(lambda *call: fill_output(call[-1], math.nan, math.nan))
    try:
        return bool(model(input_ids=ids, use_cache=False)[0].isnan().any())
    finally:
        if hook:
            hook.remove()
        if table:
            module._buffers[table.name] = before


def _window(config: Any) -> str:
    """The config's name of a window, if it has one."""
    return next((name for name, value in vars(config).items() if "window" in name and type(value) is int), "")


def _module_rotation(call: RotaryCall) -> InlineRotation:
    """The rotation by a rotary module."""
    dims, interleaved = layout(call)
    short, long = (measure_table(call, dims, last) for last in (1, PAST_EVERY_SWITCH))
    second = long_table(call, dims, short, long) if short != long else None
    kind = layer_type(call)
    return InlineRotation(
        call.module, dims, interleaved, *short, varies=short != long, long_table=second, layer_type=kind
    )


def _table_rotation(module: nn.Module, table: PositionTable, content: Measured) -> InlineRotation:
    """The rotation by a table of sin and cos; whether pairs are neighbours it does not say, and no schedule asks."""
    inv_freq, temperature = content
    return InlineRotation(module, 2 * len(inv_freq), None, inv_freq, temperature, positions=table)


def position_tables(model: nn.Module) -> list[tuple[nn.Module, PositionTable, Measured]]:
    """The modules with a buffer of sin and cos of i * theta, apart from the weights; theta, and the buffer's factor."""
    tables = []
    for module in model.modules():
        for name in module._non_persistent_buffers_set:
            values = module._buffers.get(name)
            measured_table = None if values is None else _sinusoid(values)
            if values is not None and measured_table is not None:
                sin_first, content = measured_table
                tables.append((module, PositionTable(name, len(values), sin_first), content))
    return tables


def _sinusoid(values: Tensor) -> tuple[bool, Measured] | None:
    """Whether sines come first, the frequencies, and the factor of both; None of any other numbers."""
    if values.dim() != 2 or len(values) < 2 or values.shape[1] % 2 or not values.is_floating_point():
        return None
    halves = values.detach().double().cpu().chunk(2, 1)
    close = max(SINE_ATOL, 2 * torch.finfo(values.dtype).eps)
    for sin_first in (True, False):
        sin, cos = halves if sin_first else halves[::-1]
        if not (factor := float(cos[0, 0])) > 0:
            continue
        sin, cos, pairs = sin / factor, cos / factor, sin.shape[1]
        usual = USUAL_BASE ** (-torch.arange(pairs, dtype=torch.float64) / pairs)
        for theta in (usual, torch.atan2(sin[1], cos[1])):
            angle = torch.arange(len(sin), dtype=torch.float64)[:, None] * theta
            if max(float((sin - angle.sin()).abs().max()), float((cos - angle.cos()).abs().max())) <= close:
                return sin_first, (tuple(theta.tolist()), factor)
    return None


def sinusoid(table: PositionTable, inv_freq: Sequence[float], temperature: float, rows: int) -> Tensor:
    """Such a buffer for other frequencies, in float32."""
    angle = torch.arange(rows, dtype=torch.float64)[:, None] * torch.tensor(inv_freq, dtype=torch.float64)
    parts = (angle.sin(), angle.cos()) if table.sin_first else (angle.cos(), angle.sin())
    return (temperature * torch.cat(parts, 1)).float()
