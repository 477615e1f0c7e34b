"""Where an engine's rotation differs, and which config mends it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from ropewalk.engines.rules.formulas import plain, yarn_temperature
from ropewalk.engines.rules.rotation import (
    Asked,
    EngineRotation,
    EngineRules,
    NoAnswer,
    QueryScale,
    RopeConfig,
    Version,
)
from ropewalk.engines.rules.standard import query_scale, standard_rotation, why_not_known
from ropewalk.hf.checkpoint.config_schedule import STOPPING_DIVISOR
from ropewalk.methods.spec import Json

# Compare what an engine computes for one type of layer with what the config says.


TABLE_RTOL = 1e-5  # relative: tables and temperatures in float32


class Difference(NamedTuple):
    """The largest difference of one kind in a text of one length."""

    what: str  # table, temperature or query scale
    text: int
    engine: float
    meant: float
    pair: int | None = None

    def __str__(self) -> str:
        where = f" in texts of {self.text:,} tokens"
        if self.what == "table":
            turned = abs(self.engine - self.meant) * self.text / (2 * math.pi)
            sizes = f"{self.engine:.6g} instead of {self.meant:.6g} radians per position"
            return f"pair {self.pair} rotates by {sizes}{where}: {turned:,.3g} rotations off at the last token"
        if self.what == "temperature":
            return f"logits are multiplied by {self.engine:.4f} instead of {self.meant:.4f}{where}"
        return f"queries at the end are multiplied by {self.engine:.4f} instead of {self.meant:.4f}{where}"

    def to_json(self) -> Json:
        """For programs."""
        return self._asdict()


def differences(engine: EngineRotation, meant: EngineRotation, text: int) -> tuple[Difference, ...]:
    """What differs in a text of this length; nothing where both are equal within rounding."""
    pair = _pair(engine, meant)
    table = () if pair is None else (_table(engine, meant, text, pair),)
    at_end, meant_at_end = (_scale_at(side.query_scale, text - 1) for side in (engine, meant))
    factors = (("temperature", engine.scale, meant.scale), ("query scale", at_end, meant_at_end))
    apart = (Difference(what, text, one, two) for what, one, two in factors)
    return (*table, *(factor for factor in apart if not math.isclose(factor.engine, factor.meant, rel_tol=TABLE_RTOL)))


def _pair(engine: EngineRotation, meant: EngineRotation) -> int | None:
    """The pair that differs most, relative to its speed; None where all are alike."""
    one, two = engine.inv_freq, meant.inv_freq
    if one.shape != two.shape:
        return min(len(one), len(two))
    apart = (one - two).abs() / two.abs().clamp(min=1e-30)
    worst = int(apart.argmax())
    return worst if float(apart[worst]) > TABLE_RTOL else None


def _table(engine: EngineRotation, meant: EngineRotation, text: int, pair: int) -> Difference:
    one, two = (float(side.inv_freq[pair]) if pair < len(side.inv_freq) else 0.0 for side in (engine, meant))
    return Difference("table", text, one, two, pair)


def _scale_at(scale: QueryScale | None, position: int) -> float:
    return 1.0 if scale is None else 1 + scale.beta * math.log(1 + position // scale.length)


def texts_to_compare(config: RopeConfig, name: str, served: int) -> tuple[int, ...]:
    """A short text and the longest: a schedule may treat them differently."""
    return tuple(dict.fromkeys((min(config.original(name), served), served)))


# Which keys of a config make an engine compute what the authors meant: tried by the engine's own formula.


Changes = dict[str, Any]
QUERY_SCALE = "llama_4_scaling"
LAYOUT = ("rope_theta", "llama_4_scaling_beta", "mrope_section", "mrope_interleaved")


def mend(config: RopeConfig, rules: EngineRules, version: Version, served: int) -> Changes | None:
    """The changes with which the engine computes what is meant up to the length that is served; None: no such keys."""
    known = not any(why_not_known(config, name) for name in config.parts)
    for changed in _candidates(config, served) if known else ():
        if is_right(changed, config, rules, version, served):
            return _changes(config, changed)
    return None


def is_right(changed: RopeConfig, config: RopeConfig, rules: EngineRules, version: Version, served: int) -> bool:
    """Whether a changed config gives what the checkpoint's own config means."""
    if rules.length(changed, version).allowed < served or any(why_not_known(config, name) for name in config.parts):
        return False
    for name in config.parts:
        for text in texts_to_compare(config, name, served):
            asked = Asked(version, served, text)
            try:
                computed = rules.rotation(changed, name, asked)
            except KeyError:  # of a schedule that lacks a key
                return False
            if isinstance(computed, NoAnswer) or computed.rows < served:
                return False
            if differences(computed, standard_rotation(config, name, text), text):
                return False
            if any(caution.harmful for caution in rules.cautions(changed, name, asked)):
                return False
    return True


def _candidates(config: RopeConfig, served: int) -> Iterator[RopeConfig]:
    """From the least change to the largest."""
    longer = replace(config, max_len=max(config.max_len, served))
    yield longer
    yield _with_keys_beside(longer)
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


def _with_keys_beside(config: RopeConfig) -> RopeConfig:
    """The base and the share of the head beside the rope parameters too, as they stood before transformers 5."""
    part = next(iter(config.parts.values()))
    beside = {key: part[key] for key in ("rope_theta", "partial_rotary_factor") if key in part}
    return replace(config, written={**config.written, **beside})


def _with_query_scale(config: RopeConfig) -> RopeConfig:
    """The scale of queries under its other name."""
    scale = query_scale(config, next(iter(config.parts)))
    scaling = {} if scale is None else {"beta": scale.beta, "original_max_position_embeddings": scale.length}
    return replace(config, text={**config.text, QUERY_SCALE: scaling})


def _is_static(config: RopeConfig, name: str, served: int) -> bool:
    """Whether short texts and long ones have one table."""
    one, two = (standard_rotation(config, name, text) for text in (1, served))
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
    before = config.written
    changes |= {key: value for key, value in changed.written.items() if before.get(key) != value}
    if QUERY_SCALE in changed.text and QUERY_SCALE not in config.text:
        changes[QUERY_SCALE] = changed.text[QUERY_SCALE]
    if changed.parts != config.parts:
        parts = {name: dict(part) for name, part in changed.parts.items()}
        changes["rope_parameters"] = parts.get("", parts)
    return changes
