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

from torch import Tensor

from ropewalk.errors import DoesNotFit
from ropewalk.extension import Extension
from ropewalk.facts import Facts
from ropewalk.frequencies import ByParts, Interpolation, Llama3
from ropewalk.frequencies.signature import trained
from ropewalk.hf.layers import Attached
from ropewalk.hf.static import constant_scale, static_table
from ropewalk.inputs import in_force

CLOSE = 1e-9  # relative: float64 tables that are the same
EXACT = 1e-12  # relative: what a power in float64 leaves


def standard_config(config: Any, extension: Extension, layers: Sequence[Attached], target_len: int | None) -> Any:
    """A copy of the config that says the extension, or a refusal that says why it cannot."""
    if extension.layers:
        raise DoesNotFit("layers", "all alike in a config", [key for key, _ in extension.overrides])
    turning = [own for own in layers if own.layer.rotating and not own.left_alone]
    if not turning:
        raise DoesNotFit("model", "one with a layer that the extension rules", "windows in all layers")
    if any(own.layer.window is not None and not own.left_alone for own in layers):
        raise DoesNotFit("windows", "the model's own in a config", "lifted")
    stated = copy.deepcopy(config)
    stated._attn_implementation = None
    text = stated.get_text_config()
    own = turning[0]
    length = _target(extension, own.facts, target_len)
    parameters = rope_parameters(extension, own.facts, length)
    kinds = getattr(text, "layer_types", None)
    nested = {name for name, part in (text.rope_parameters or {}).items() if isinstance(part, dict)}
    if nested and kinds:
        for kind in {kinds[each.depth] for each in turning}:
            text.rope_parameters[kind] = {**_kept(text.rope_parameters[kind]), **parameters}
    elif any(each.left_alone for each in layers):
        raise DoesNotFit("config", "one with rotary tables of their own for layers with a window", type(text).__name__)
    else:
        text.rope_parameters = {**_kept(text.rope_parameters or {}), **parameters}
    text.max_position_embeddings = length
    return stated


def require_sayable(extension: Extension, layers: Sequence[Attached]) -> None:
    """Refuse a temperature that a config would lose: it says it of cos and sin."""
    ruled = [own.layer for own in layers if not own.left_alone]
    if extension.scales and any(layer.norm_follows or not layer.rotating for layer in ruled):
        rule = "none in a config where layers turn nothing, or turn before a norm"
        raise DoesNotFit("temperature", rule, extension.scales[0].name)


def _kept(parameters: dict[str, Any]) -> dict[str, Any]:
    """What belongs to the model's layout and not to a schedule."""
    return {name: value for name, value in parameters.items() if name in ("rope_theta", "partial_rotary_factor")}


def rope_parameters(extension: Extension, facts: Facts, target_len: int) -> dict[str, Any]:
    """The complete set for a static extension, or a refusal."""
    in_force(extension, facts, None, None)
    temperature = constant_temperature(extension, facts)
    factor = getattr(extension.theta, "factor", None)
    common = {"rope_theta": facts.base, "original_max_position_embeddings": facts.trained_len}
    match extension.theta:
        case Interpolation() if temperature == 1:
            return {"rope_theta": facts.base, "rope_type": "linear", "factor": factor}
        case ByParts(ramp="index", mix="frequency") as spec:
            turns = {"beta_slow": spec.low_turns, "beta_fast": spec.high_turns, "truncate": spec.truncate}
            return {**common, "rope_type": "yarn", "factor": factor, "attention_factor": temperature, **turns}
        case Llama3() as spec if temperature == 1:
            turns = {"low_freq_factor": spec.low_turns, "high_freq_factor": spec.high_turns}
            return {**common, "rope_type": "llama3", "factor": factor, **turns}
    return _by_table(extension, facts, target_len, temperature)


def _by_table(extension: Extension, facts: Facts, target_len: int, temperature: float) -> dict[str, Any]:
    """Another base where that gives the table, else a divisor for each pair."""
    table = static_table(extension, facts)
    base = _base(float(table[-1]), facts.rotating)
    if temperature == 1 and base > 1 and _alike(trained(replace(facts, base=base)), table):
        return {"rope_theta": base, "rope_type": "default"}
    if not (table > 0).all():
        raise DoesNotFit("frequencies", "above 0 in every pair", extension.theta.name)
    divisors = (trained(facts) / table).tolist()
    return {
        "rope_theta": facts.base,
        "rope_type": "longrope",
        "short_factor": divisors,
        "long_factor": divisors,
        "factor": 1.0,
        "attention_factor": temperature,
        "original_max_position_embeddings": target_len,
    }


def _base(slowest: float, rotating: int) -> float:
    """The base that gives the slowest pair, without what a power leaves in its last digits; 0 where there is none."""
    if rotating <= 2 or slowest <= 0:
        return 0.0
    base = slowest ** (-rotating / (rotating - 2))
    return float(round(base)) if math.isclose(base, round(base), rel_tol=EXACT) else base


def constant_temperature(extension: Extension, facts: Facts) -> float:
    """What cos and sin are multiplied by, once for queries and once for keys; refused where it is no constant."""
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


def _alike(one: Tensor, other: Tensor) -> bool:
    return bool(((one - other).abs() <= CLOSE * other.abs()).all())
