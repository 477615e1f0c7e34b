"""An extension in the words of transformers' config, where those have one: what plain transformers then loads.

What is static, a table of frequencies and a temperature, can be said: as the type that bears its name, as another base,
or pair by pair as longrope with equal factors.
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
from ropewalk.extension import Extension
from ropewalk.facts import Facts
from ropewalk.frequencies import ByParts, Interpolation, Llama3
from ropewalk.frequencies.signature import formula, trained
from ropewalk.hf.probe.checkpoint_schedule import SCHEDULE
from ropewalk.hf.runtime.layer import ExtendedLayer, type_of
from ropewalk.hf.runtime.static_schedule import constant_scale, static_table
from ropewalk.inputs import in_force

CLOSE, SINGLE = 1e-9, 1e-6  # relative: tables that are the same, in float64 and as a model keeps its own in float32
STILL = 1e20  # a divisor under which a pair stands still, in float32 and for any length
MSCALE = ("factor", "mscale", "mscale_all_dim")  # DeepSeek's own scaling is read from these, whatever the type
EXACT = 1e-12  # relative: what a power in float64 leaves


def standard_config(config: Any, extension: Extension, layers: Sequence[ExtendedLayer], target_len: int | None) -> Any:
    """A copy of the config that says the extension, or a refusal that says why it cannot."""
    if extension.layers:
        raise DoesNotFit("layers", "all alike in a config", [key for key, _ in extension.overrides])
    turning = [own for own in layers if own.probed.rotating and not own.left_alone]
    if not turning:
        raise DoesNotFit("model", "one with a layer that the extension rules", "windows in all layers")
    if any(own.probed.window is not None and not own.keeps_window for own in layers):
        raise DoesNotFit("windows", "the model's own in a config", "lifted")
    constant_temperature(extension, turning[0].facts)  # refuses what is not static before it asks for a length
    length = _target(extension, turning[0].facts, target_len)
    try:
        return _stated(config, extension, layers, turning, length, by_name=True)
    except DoesNotFit:  # some configs know few types, as Phi-3's knows longrope
        return _stated(config, extension, layers, turning, length, by_name=False)


def _stated(
    config: Any,
    extension: Extension,
    layers: Sequence[ExtendedLayer],
    turning: Sequence[ExtendedLayer],
    length: int,
    by_name: bool,
) -> Any:
    """The config with the schedule under its name or by its table."""
    stated = copy.deepcopy(config)
    stated._attn_implementation = None
    text = stated.get_text_config()
    kinds = getattr(text, "layer_types", None)
    parts = text.rope_parameters or {}
    nested = any(isinstance(part, dict) for part in parts.values())
    if nested and kinds:
        for kind in dict.fromkeys(type_of(each, kinds) for each in turning):
            ruled = [each for each in turning if type_of(each, kinds) == kind]
            text.rope_parameters[kind] = _alike_in_all(extension, ruled, parts[kind], length, by_name)
    elif any(each.left_alone for each in layers):
        raise DoesNotFit("config", "one with rotary tables of their own for layers with a window", type(text).__name__)
    else:
        text.rope_parameters = _alike_in_all(extension, turning, parts, length, by_name)
    text.max_position_embeddings = length
    _require_valid(text)
    return stated


def _require_valid(text: Any) -> None:
    """Refuse what the config's own class would refuse when it is read again."""
    try:
        text.validate_rope()
    except Exception as reason:  # it has errors of several kinds, AttributeError among them
        rule = f"one that {type(text).__name__} takes"
        said = f"{type(reason).__name__} in transformers: {str(reason).splitlines()[0]}"
        raise DoesNotFit("schedule", rule, said) from reason


def _alike_in_all(
    extension: Extension, layers: Sequence[ExtendedLayer], part: dict[str, Any], target_len: int, by_name: bool
) -> dict[str, Any]:
    """The parameters of layers that share one set in the config."""
    found = [rope_parameters(extension, own, part, target_len, by_name) for own in layers]
    if any(each != found[0] for each in found):
        raise DoesNotFit("layers", "under one schedule where the config has one for them all", "several")
    return found[0]


def require_sayable(extension: Extension, layers: Sequence[ExtendedLayer]) -> None:
    """Refuse a temperature that a config would lose: it says it of cos and sin."""
    ruled = [own.probed for own in layers if not own.left_alone]
    if extension.scales and any(layer.norm_follows or not layer.rotating for layer in ruled):
        rule = "none in a config where layers turn nothing, or turn before a norm"
        raise DoesNotFit("temperature", rule, extension.scales[0].name)


def rope_parameters(
    extension: Extension, own: ExtendedLayer, part: dict[str, Any], target_len: int, by_name: bool = True
) -> dict[str, Any]:
    """The complete set for a static extension on one kind of layer that came with `part`, or a refusal."""
    facts = own.facts
    in_force(extension, facts, None, None)
    temperature = temperature_of(extension, own)
    if not extension.instead and extension.frequencies is None and temperature == own.temperature:
        return dict(part)
    if own.probed.long_table is not None and not extension.instead:
        rule = "on one table, where the model has one for short texts and one for long ones"
        raise DoesNotFit("frequencies", rule, extension.theta.name, remedy="add +instead to take the place of both")
    layout = {name: value for name, value in part.items() if name not in SCHEDULE}
    layout |= {"rope_theta": facts.base}
    if "original_max_position_embeddings" in part:  # which some models read for more than their schedule
        layout["original_max_position_embeddings"] = part["original_max_position_embeddings"]
    named = _by_name(extension, facts, temperature) if by_name and facts.inv_freq is None else {}
    return {**layout, **(named or _by_table(extension, own, part, target_len, by_name))}


def _by_name(extension: Extension, facts: Facts, temperature: float) -> dict[str, Any]:
    """The type that bears the schedule's name, on a model without a schedule of its own; empty where there is none."""
    factor = getattr(extension.theta, "factor", None)
    original = {"original_max_position_embeddings": facts.trained_len}
    match extension.theta:
        case Interpolation() if temperature == 1:
            return {"rope_type": "linear", "factor": factor}
        case ByParts(ramp="index", mix="frequency") as spec:
            turns = {"beta_slow": spec.low_turns, "beta_fast": spec.high_turns, "truncate": spec.truncate}
            return {**original, "rope_type": "yarn", "factor": factor, "attention_factor": temperature, **turns}
        case Llama3() as spec if temperature == 1:
            turns = {"low_freq_factor": spec.low_turns, "high_freq_factor": spec.high_turns}
            return {**original, "rope_type": "llama3", "factor": factor, **turns}
    return {}


def _by_table(
    extension: Extension, own: ExtendedLayer, part: dict[str, Any], target_len: int, by_name: bool
) -> dict[str, Any]:
    """Another base where that gives the table, one factor for all pairs, else a divisor for each pair."""
    facts, temperature = own.facts, temperature_of(extension, own)
    table = static_table(extension, facts)
    keeps_scaling = bool(part.get("mscale_all_dim")) and not extension.instead
    short = {} if temperature != 1 or keeps_scaling or not by_name else _in_few_words(table, facts, part)
    if short:
        return short
    divisors = torch.where(table > 0, formula(facts) / table, STILL).tolist()
    found: dict[str, Any] = {"rope_type": "longrope", "short_factor": divisors, "long_factor": divisors}
    found |= {"factor": 1.0, "attention_factor": temperature}
    if "original_max_position_embeddings" not in part:
        found["original_max_position_embeddings"] = target_len
    if part.get("rope_type") == "proportional":  # under which all pairs have a number
        found["partial_rotary_factor"] = 1.0
    return found | ({name: part[name] for name in MSCALE if name in part} if keeps_scaling else {})


def _in_few_words(table: Tensor, facts: Facts, part: dict[str, Any]) -> dict[str, Any]:
    """Another base, or one factor for all pairs, where those give the table; else nothing."""
    close = CLOSE if facts.inv_freq is None else SINGLE
    base = _base(float(table[-1]), facts.rotating)
    if base > 1 and _alike(formula(replace(facts, base=base)), table, close):
        return {"rope_theta": base, "rope_type": "default"}
    plain = trained(facts.undone)  # with the pairs that stand still by the model's layout
    factor = float(f"{float(plain[0] / table[0]):.6g}") if table[0] > 0 else 0.0
    if factor < 1 or not _alike(plain / factor, table, close):
        return {}
    return {"rope_type": "proportional" if part.get("rope_type") == "proportional" else "linear", "factor": factor}


def _base(slowest: float, rotating: int) -> float:
    """The base that gives the slowest pair, without what a power leaves in its last digits; 0 where there is none."""
    if rotating <= 2 or slowest <= 0:
        return 0.0
    base = slowest ** (-rotating / (rotating - 2))
    return float(round(base)) if math.isclose(base, round(base), rel_tol=EXACT) else base


def temperature_of(extension: Extension, own: ExtendedLayer) -> float:
    """What cos and sin are multiplied by in all: by the model's own schedule and by the extension."""
    return own.temperature * constant_temperature(extension, own.facts)


def constant_temperature(extension: Extension, facts: Facts) -> float:
    """What the extension multiplies cos and sin by, for queries and for keys; refused where it is no constant."""
    static_table(extension, facts)
    total = constant_scale(extension, facts)
    if total != 1 and facts.rotating < facts.head_dim:
        rule = "1 in a config where only some dimensions turn, since it is said of those alone"
        raise DoesNotFit("temperature", rule, math.sqrt(total))
    return math.sqrt(total)


def _target(extension: Extension, facts: Facts, target_len: int | None) -> int:
    """The length to write down, which the schedule says where nobody else does."""
    stretch = extension.theta.stretch
    if target_len is None and math.isinf(stretch):
        raise DoesNotFit("target_len", f"given, since {extension.theta.name} has no factor of its own", None)
    return int(facts.trained_len * stretch) if target_len is None else target_len


def _alike(one: Tensor, other: Tensor, close: float) -> bool:
    return bool(((one - other).abs() <= close * other.abs()).all())
