"""transformers, as it reads a config (5.20 to 5.23: modeling_rope_utils.py; read and run):

dynamic     one table for the batch, by its longest text; keys in a cache keep the table of their step
longrope    one table for the batch, by its longest text; Phi-3 begins its cache anew where the table changes
yarn        `truncate` is read beside the layer types, not inside them
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ropewalk.engines.rules.rotation import (
    LAYOUT,
    Answer,
    Asked,
    Caution,
    EngineRules,
    LengthRule,
    NoAnswer,
    RopeConfig,
    Version,
    VersionRange,
)
from ropewalk.engines.rules.standard import has_two_tables, standard_rotation, why_not_known
from ropewalk.engines.rules.statement import EngineReading, ExportRules, StatedModel, is_lowered, place_temperature

READS = {
    "default": (),
    "linear": ("factor",),
    "proportional": ("factor",),
    "dynamic": ("factor",),
    "yarn": (
        *("factor", "original_max_position_embeddings", "attention_factor", "beta_fast", "beta_slow"),
        *("mscale", "mscale_all_dim", "truncate"),
    ),
    "longrope": ("factor", "original_max_position_embeddings", "attention_factor", "short_factor", "long_factor"),
    "llama3": ("factor", "original_max_position_embeddings", "low_freq_factor", "high_freq_factor"),
}
RENEWS_ITS_CACHE = ("phi3", "phimoe", "phi4_multimodal")
OF_LENGTH = "transformers takes one table for a batch, by its longest text"


def rotation(config: RopeConfig, name: str, asked: Asked) -> Answer:
    """What the config says, but for `truncate` inside a layer type."""
    kind = config.kind(name)
    if config.released_as:
        sentence = f"transformers has no code of its own for {config.released_as}; trust_remote_code runs its makers'"
        remedy = f"write model_type {config.model_type} into a copy of its config.json, without auto_map"
        return NoAnswer("refused", sentence, remedy)
    if kind not in READS:
        return NoAnswer("refused", f"transformers knows no rope type {kind!r}")
    read = _read(config, name)
    return why_not_known(read, name) or standard_rotation(read, name, asked.text)


def _read(config: RopeConfig, name: str) -> RopeConfig:
    """The config with what transformers does not read left out."""
    unread = {"truncate"} if name else set()
    unread |= {"short_mscale", "long_mscale"} if config.model_type != "phimoe" else set()
    part = {key: value for key, value in config.parts[name].items() if key not in unread}
    return replace(config, parts={**config.parts, name: part})


def length(config: RopeConfig, version: Version) -> LengthRule:
    """Any; max_position_embeddings is what it states."""
    return LengthRule(float("inf"), config.max_len)


def reads(config: RopeConfig, name: str, version: Version) -> frozenset[str]:
    """The keys of a part."""
    kept = frozenset(READS.get(config.kind(name), ())) | {"llama_4_scaling_beta"}
    kept |= {"alpha"} if config.model_type.startswith("hunyuan") else set()
    return LAYOUT | kept - ({"truncate"} if name else set())


def flags(changes: Mapping[str, Any], served: int) -> str:
    """The arguments of from_pretrained."""
    values = "".join(f", {key}={value!r}" for key, value in changes.items())
    return f"AutoModelForCausalLM.from_pretrained(MODEL{values})"


def cautions(config: RopeConfig, name: str, asked: Asked) -> tuple[Caution, ...]:
    """A growing text meets several tables, and a batch has one."""
    kind = config.kind(name)
    if kind == "dynamic" and not config.parts[name].get("alpha") and asked.served > config.max_len:
        return (Caution(f"{OF_LENGTH}; keys in the cache keep the table of their step", harmful=True),)
    if not has_two_tables(config, name) or asked.served <= config.original(name):
        return ()
    if config.model_type in RENEWS_ITS_CACHE:
        return (Caution(f"{OF_LENGTH}: a short text beside a long one is computed differently", harmful=False),)
    return (Caution(f"{OF_LENGTH}; keys in the cache keep the short one", harmful=True),)


def rewrite(stated: StatedModel) -> EngineReading:
    """Unchanged, but for a temperature that cos and sin do not bring to every logit."""
    folded = place_temperature(stated)
    return EngineReading(is_lowered(stated), folded)


def command(place: str, stated: StatedModel) -> str:
    """Loads it."""
    return f'python -c "from transformers import AutoModelForCausalLM as A; A.from_pretrained({place!r})"'


RULES = EngineRules(
    "transformers",
    (VersionRange((5, 20), (5, 23), "modeling_rope_utils.py of 5.20 to 5.23, 5.23.0 read and run"),),
    rotation,
    length,
    reads,
    flags,
    cautions,
    export=ExportRules(rewrite, command),
)
