"""Which keys of a config make an engine compute what the authors meant: tried by the engine's own formula."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ropewalk.engines.check.compare import differences, texts_to_compare
from ropewalk.engines.rules.formulas import plain, yarn_temperature
from ropewalk.engines.rules.rotation import (
    Asked,
    EngineFormulas,
    EngineRotation,
    NotKnown,
    NotServed,
    RopeConfig,
    Version,
)
from ropewalk.engines.rules.standard import query_scale, standard_rotation
from ropewalk.hf.checkpoint.config_schedule import STOPPING_DIVISOR

Changes = dict[str, Any]
QUERY_SCALE = "llama_4_scaling"
LAYOUT = ("rope_theta", "llama_4_scaling_beta")


def mend(config: RopeConfig, rules: EngineFormulas, version: Version, served: int) -> Changes | None:
    """The changes with which the engine computes what is meant up to the length that is served; None: no such keys."""
    for changed in _candidates(config, served) if _is_known(config) else ():
        if is_right(changed, config, rules, version, served):
            return _changes(config, changed)
    return None


def _is_known(config: RopeConfig) -> bool:
    """Whether it is known what the config means."""
    try:
        return bool([standard_rotation(config, name, 1) for name in config.parts])
    except NotKnown:
        return False


def is_right(changed: RopeConfig, config: RopeConfig, rules: EngineFormulas, version: Version, served: int) -> bool:
    """Whether a changed config gives what the checkpoint's own config means."""
    if rules.length(changed, version).allowed < served:
        return False
    for name in config.parts:
        for text in texts_to_compare(config, name, served):
            asked = Asked(version, served, text)
            try:
                computed, meant = rules.rotation(changed, name, asked), standard_rotation(config, name, text)
            except (NotKnown, NotServed, KeyError):
                return False
            if computed.rows < served or differences(computed, meant, text):
                return False
            if any(caution.harmful for caution in rules.cautions(changed, name, asked)):
                return False
    return True


def _candidates(config: RopeConfig, served: int) -> Iterator[RopeConfig]:
    """From the least change to the largest."""
    longer = replace(config, max_len=max(config.max_len, served))
    yield longer
    for base in (config, longer):
        hotter = _with_parts(base, {name: _with_temperature(config, name, served) for name in config.parts})
        yield hotter
        yield from (_with_query_scale(one) for one in (base, hotter) if query_scale(config, next(iter(config.parts))))
    if all(_is_static(config, name, served) for name in config.parts):
        names = [name for name in config.parts if config.kind(name) != "default"]
        yield _with_parts(longer, {name: _pair_by_pair(config, name, served) for name in names})


def _with_parts(config: RopeConfig, parts: Mapping[str, Mapping[str, Any]]) -> RopeConfig:
    return replace(config, parts={**config.parts, **parts})


def _with_temperature(config: RopeConfig, name: str, served: int) -> dict[str, Any]:
    """The temperature under every name that it has."""
    part, kind = dict(config.parts[name]), config.kind(name)
    short, long = (
        standard_rotation(config, name, text).temperature for text in (1, max(served, config.original(name) + 1))
    )
    if kind == "yarn":
        part |= {"attention_factor": long, "attn_factor": long / yarn_temperature(config.factor(name))}
    elif kind == "longrope":
        part |= {"attention_factor": long, "short_mscale": short, "long_mscale": long}
    return part


def _with_query_scale(config: RopeConfig) -> RopeConfig:
    """The scale of queries under its other name."""
    scale = query_scale(config, next(iter(config.parts)))
    scaling = {} if scale is None else {"beta": scale.beta, "original_max_position_embeddings": scale.length}
    return replace(config, text={**config.text, QUERY_SCALE: scaling})


def _is_static(config: RopeConfig, name: str, served: int) -> bool:
    """Whether short texts and long ones have one table."""
    try:
        one, two = (standard_rotation(config, name, text) for text in (1, served))
    except NotKnown:
        return False
    return not differences(one, two._replace(query_scale=one.query_scale), 1)


def _pair_by_pair(config: RopeConfig, name: str, served: int) -> dict[str, Any]:
    """As longrope, with one set of divisors for short texts and long ones."""
    part, meant = config.parts[name], standard_rotation(config, name, served)
    divisors = _divisors(config, name, meant)
    kept = {key: part[key] for key in (*LAYOUT, "partial_rotary_factor") if key in part}
    values = {"rope_type": "longrope", "short_factor": divisors, "long_factor": divisors, "factor": 1.0}
    temperature = dict.fromkeys(("attention_factor", "short_mscale", "long_mscale"), meant.temperature)
    return {**kept, **values, **temperature, "original_max_position_embeddings": served}


def _divisors(config: RopeConfig, name: str, meant: EngineRotation) -> list[float]:
    base = plain(config.base(name), 2 * len(meant.inv_freq))
    return [float(value) for value in (base / meant.inv_freq).clamp(max=STOPPING_DIVISOR)]


def _changes(config: RopeConfig, changed: RopeConfig) -> Changes:
    """The keys of the config that differ, as flags give them."""
    changes: Changes = {}
    if changed.max_len != config.max_len:
        changes["max_position_embeddings"] = changed.max_len
    if QUERY_SCALE in changed.text and QUERY_SCALE not in config.text:
        changes[QUERY_SCALE] = changed.text[QUERY_SCALE]
    if changed.parts != config.parts:
        parts = {name: dict(part) for name, part in changed.parts.items()}
        changes["rope_parameters"] = parts.get("", parts)
    return changes
