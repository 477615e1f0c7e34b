"""A static extension as a transformers config, which plain transformers loads.

A table of frequencies and a temperature can be expressed: as the type of its name, as another base, or pair by pair as
longrope with equal factors.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ropewalk.errors import DoesNotFit
from ropewalk.extension.extension import Extension
from ropewalk.extension.inputs import layer_extension
from ropewalk.extension.static import constant_scale, static_table, why_not_constant, why_not_static
from ropewalk.hf.probe.facts import SCHEDULE
from ropewalk.hf.runtime.layer import ExtendedLayer, is_lifted, type_of
from ropewalk.methods.facts import Facts
from ropewalk.methods.frequencies import ByParts, Interpolation, Llama3
from ropewalk.methods.frequencies.frequencies import formula, trained_theta

DOUBLE_RTOL, SINGLE = 1e-9, 1e-6  # relative: equal tables, in float64 and in a model's float32
STOPPING_DIVISOR = 1e20  # a divisor that stops the rotation of a pair, in float32 and for any length
MSCALE = ("factor", "mscale", "mscale_all_dim")  # DeepSeek's own scaling is read from these, whatever the type
BASE_RTOL = 1e-12  # relative: the error of a power in float64


def standard_config(
    config: Any, extension: Extension, layers: Sequence[ExtendedLayer], target_len: int | None
) -> Any | DoesNotFit:
    """A copy of the config with the extension, or the reason why no config says it."""
    if extension.layers:
        keys = [key for key, _ in extension.layer_items]
        return DoesNotFit("layers", "all equal in a config", keys, remedy="only ropewalk.load runs it")
    rotating_layers = [layer for layer in layers if layer.probed.rotating and not layer.left_alone]
    if not rotating_layers:
        return DoesNotFit.because("model", "the extension changes no layer of this model")
    if any(map(is_lifted, layers)):
        return DoesNotFit.because("windows", "lifted windows cannot be expressed in a config")
    facts, theta = rotating_layers[0].facts, extension.frequencies_or_rope
    if reason := why_no_constant_temperature(extension, facts):  # said before a length is asked for
        return reason
    if target_len is None and math.isinf(theta.stretch):
        return DoesNotFit.because("target_len", f"{theta.name} has no factor", remedy="pass target_len (--to)")
    length = int(facts.trained_len * theta.stretch) if target_len is None else target_len
    stated = _state_schedule(config, extension, layers, rotating_layers, length, by_name=True)
    if isinstance(stated, DoesNotFit):  # some configs know few types: Phi-3's knows longrope
        return _state_schedule(config, extension, layers, rotating_layers, length, by_name=False)
    return stated


def _state_schedule(
    config: Any,
    extension: Extension,
    layers: Sequence[ExtendedLayer],
    rotating_layers: Sequence[ExtendedLayer],
    length: int,
    by_name: bool,
) -> Any | DoesNotFit:
    """The config with the schedule under its name or by its table, or the reason why it does not hold it."""
    stated = copy.deepcopy(config)
    stated._attn_implementation = None
    text = stated.get_text_config()
    kinds = getattr(text, "layer_types", None)
    if not hasattr(text, "rope_parameters"):
        return DoesNotFit("config", "one with rope parameters", type(text).__name__)
    parts = text.rope_parameters or {}
    nested = bool(kinds) and any(isinstance(part, dict) for part in parts.values())
    if not nested and any(layer.left_alone for layer in layers):
        return DoesNotFit("config", "one with separate rotary tables for windowed layers", type(text).__name__)
    by_kind: dict[str, list[ExtendedLayer]] = {}
    for layer in rotating_layers:
        by_kind.setdefault(type_of(layer, kinds) if nested and kinds else "", []).append(layer)
    for kind, ruled in by_kind.items():
        part = parts[kind] if nested else parts
        every = [rope_parameters(extension, layer, part, length, by_name) for layer in ruled]
        if reason := next((one for one in every if isinstance(one, DoesNotFit)), None):
            return reason
        if any(one != every[0] for one in every):
            return DoesNotFit("layers", "under one schedule, since the config has one for them all", "several")
        if nested:
            text.rope_parameters[kind] = every[0]
        else:
            text.rope_parameters = every[0]
    text.max_position_embeddings = length
    return why_not_valid(text) or stated


def why_not_valid(text: Any) -> DoesNotFit | None:
    """What the config's own class would refuse when it is read again; None where it takes it."""
    try:
        text.validate_rope()
    except Exception as reason:  # of several kinds, even AttributeError
        sentence = f"{type(text).__name__} does not accept the schedule"
        detail = f"{type(reason).__name__} in transformers: {str(reason).splitlines()[0]}"
        return DoesNotFit.because("schedule", f"{sentence}; {detail}")
    return None


def why_not_expressible(extension: Extension, layers: Sequence[ExtendedLayer]) -> DoesNotFit | None:
    """Why a config cannot hold a temperature: it multiplies cos and sin only. None where that is all it needs."""
    ruled = [layer.probed for layer in layers if not layer.left_alone]
    whole = [spec.name for spec in extension.scales if not spec.of_rotation]
    if not whole or not any(layer.norm_follows or not layer.rotating for layer in ruled):
        return None
    sentence = f"{whole[0]} (temperature) is lost in a config where layers do not rotate, or before a norm"
    return DoesNotFit.because("temperature", sentence)


def rope_parameters(
    extension: Extension, layer: ExtendedLayer, part: dict[str, Any], target_len: int, by_name: bool = True
) -> dict[str, Any] | DoesNotFit:
    """The rope parameters of a static extension on one type of layer that came with `part`, or the reason for none."""
    facts = layer.facts
    layer_extension(extension, facts)
    if reason := why_no_constant_temperature(extension, facts):
        return reason
    temperature = temperature_of(extension, layer)
    if not extension.replaces_scaling and extension.frequencies is None and temperature == layer.temperature:
        return dict(part)
    if layer.probed.long_table is not None and not extension.replaces_scaling:
        name = extension.frequencies_or_rope.name
        sentence = f"a config cannot express {name} on a table for short texts and one for long ones"
        return DoesNotFit.because("frequencies", sentence, remedy="add +instead to replace both")
    layout = {name: value for name, value in part.items() if name not in SCHEDULE}
    layout |= {"rope_theta": facts.base}
    if "original_max_position_embeddings" in part:  # some models read it for more than their schedule
        layout["original_max_position_embeddings"] = part["original_max_position_embeddings"]
    named = _named_schedule(extension, facts, temperature) if by_name and facts.inv_freq is None else {}
    return {**layout, **(named or _schedule_of_table(extension, layer, part, target_len, by_name))}


def _named_schedule(extension: Extension, facts: Facts, temperature: float) -> dict[str, Any]:
    """The type with the schedule's name, on a model without a schedule; empty where there is none."""
    factor = getattr(extension.frequencies_or_rope, "factor", None)
    original = {"original_max_position_embeddings": facts.trained_len}
    match extension.frequencies_or_rope:
        case Interpolation() if temperature == 1:
            return {"rope_type": "linear", "factor": factor}
        case ByParts(ramp="index", mix="frequency") as spec:
            turns = {"beta_slow": spec.low_turns, "beta_fast": spec.high_turns, "truncate": spec.truncate}
            return {**original, "rope_type": "yarn", "factor": factor, "attention_factor": temperature, **turns}
        case Llama3() as spec if temperature == 1:
            turns = {"low_freq_factor": spec.low_turns, "high_freq_factor": spec.high_turns}
            return {**original, "rope_type": "llama3", "factor": factor, **turns}
    return {}


def _schedule_of_table(
    extension: Extension, layer: ExtendedLayer, part: dict[str, Any], target_len: int, by_name: bool
) -> dict[str, Any]:
    """Another base where that gives the table, one factor for all pairs, else one divisor per pair."""
    facts, temperature = layer.facts, temperature_of(extension, layer)
    table = static_table(extension, facts)
    keeps_scaling = bool(part.get("mscale_all_dim")) and not extension.replaces_scaling
    short = {} if temperature != 1 or keeps_scaling or not by_name else _schedule_of_one_number(table, facts, part)
    if short:
        return short
    divisors = torch.where(table > 0, formula(facts) / table, STOPPING_DIVISOR).tolist()
    values: dict[str, Any] = {"rope_type": "longrope", "short_factor": divisors, "long_factor": divisors}
    values |= {"factor": 1.0, "attention_factor": temperature}
    if "original_max_position_embeddings" not in part:
        values["original_max_position_embeddings"] = target_len
    if part.get("rope_type") == "proportional":  # there every pair has a divisor
        values["partial_rotary_factor"] = 1.0
    return values | ({name: part[name] for name in MSCALE if name in part} if keeps_scaling else {})


def _schedule_of_one_number(table: Tensor, facts: Facts, part: dict[str, Any]) -> dict[str, Any]:
    """Another base, or one factor for all pairs, where those give the table; else nothing."""
    close = DOUBLE_RTOL if facts.inv_freq is None else SINGLE
    base = _base(float(table[-1]), facts.rotating)
    if base > 1 and _alike(formula(replace(facts, base=base)), table, close):
        return {"rope_theta": base, "rope_type": "default"}
    plain = trained_theta(facts.unscaled)  # with the pairs that do not rotate by the model's layout
    factor = float(f"{float(plain[0] / table[0]):.6g}") if table[0] > 0 else 0.0
    if factor < 1 or not _alike(plain / factor, table, close):
        return {}
    return {"rope_type": "proportional" if part.get("rope_type") == "proportional" else "linear", "factor": factor}


def _base(slowest: float, rotating: int) -> float:
    """The base that gives the slowest pair, without rounding errors in its last digits; 0 where there is none."""
    if rotating <= 2 or slowest <= 0:
        return 0.0
    base = slowest ** (-rotating / (rotating - 2))
    return float(round(base)) if math.isclose(base, round(base), rel_tol=BASE_RTOL) else base


def temperature_of(extension: Extension, layer: ExtendedLayer) -> float:
    """The whole factor of cos and sin: the model's own schedule times the extension."""
    if reason := why_no_constant_temperature(extension, layer.facts):
        raise reason
    scale = constant_scale(extension, layer.facts)
    return layer.temperature * math.sqrt(scale.logits * scale.rotation)


def why_no_constant_temperature(extension: Extension, facts: Facts) -> DoesNotFit | None:
    """Why the factor of cos and sin by an extension is not one number, or not all; None where it is."""
    if reason := why_not_static(extension, facts) or why_not_constant(extension, facts):
        return reason
    scale = constant_scale(extension, facts)
    if scale.logits == 1 or facts.rotating == facts.head_dim:
        return None
    rule = "over the rotating dimensions in a config where only some rotate (over=rotating)"
    return DoesNotFit("temperature", rule, f"{math.sqrt(scale.logits):.4f} over the whole head")


def _alike(one: Tensor, other: Tensor, close: float) -> bool:
    return bool(((one - other).abs() <= close * other.abs()).all())
