"""LMDeploy's PyTorch backend, as its source reads a config (0.18.0: nn/rotary_embedding.py and models/; not run):

all         as transformers gives it, by the config's own types; FoPE's learned matrices are not looked at here
dynamic     one table for a step, by its longest text; keys in the cache keep that of their step
longrope    the same, at LongRoPE's own temperature for max_position_embeddings; attention_factor is not read
Gemma 3     linear, whatever the config says, and a stop where it has no factor
length      any; what is left of the memory

TurboMind, its other backend, was not read.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Mapping
from typing import Any

from ropewalk.engines.rules import formulas
from ropewalk.engines.rules.rotation import (
    LAYOUT,
    READS,
    Answer,
    Asked,
    Caution,
    EngineRotation,
    EngineRules,
    LengthRule,
    NoAnswer,
    RopeConfig,
    Version,
    VersionRange,
)
from ropewalk.engines.rules.standard import TABLES, has_two_tables, longrope_table, standard_rotation

READ = {
    *("llama", "mistral", "mixtral", "phi3", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "qwen3_next", "gpt_oss"),
    *("glm4", "glm4_moe", "gemma", "gemma2", "internlm3", "deepseek_v2", "deepseek_v3"),
}
GEMMA3 = "gemma3_text"
KINDS = ("default", "linear", "dynamic", "yarn", "longrope", "llama3")
YARN = ("factor", "original_max_position_embeddings", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate")


def rotation(config: RopeConfig, name: str, asked: Asked) -> Answer:
    """What LMDeploy's rotary module of one type of layer computes."""
    kind = config.kind(name)
    if config.model_type == GEMMA3:
        return _gemma3(config, name)
    if config.model_type not in READ:
        return NoAnswer("unknown", f"LMDeploy's code for {config.model_type} was not read")
    if kind not in KINDS:
        return NoAnswer("refused", f"LMDeploy knows no rope type {kind!r}")
    if kind == "longrope":
        original = config.original(name)
        usual = formulas.longrope_temperature(config.max_len / original, original)
        return EngineRotation(longrope_table(config, name, asked.text > original), usual)
    return standard_rotation(config, name, asked.text)._replace(query_scale=None)


def _gemma3(config: RopeConfig, name: str) -> Answer:
    if name == "sliding_attention":
        return EngineRotation(formulas.plain(config.base(name), config.dims(name)))
    if "factor" not in config.parts[name]:
        return NoAnswer("refused", "LMDeploy stops at a Gemma 3 whose full_attention has no factor")
    return EngineRotation(TABLES["linear"](config, name, 1))


def reads(config: RopeConfig, name: str, version: Version) -> frozenset[str]:
    """The keys of a part."""
    if config.model_type == GEMMA3:
        return LAYOUT | ({"factor"} if name == "full_attention" else set())
    keys = {*YARN, "attention_factor"} if config.kind(name) == "yarn" else {*READS.get(config.kind(name), ())}
    return LAYOUT | keys - {"alpha", "short_mscale", "long_mscale"}


def cautions(config: RopeConfig, name: str, asked: Asked) -> tuple[Caution, ...]:
    """A growing text meets several tables, and those that are computed beside it have its own."""
    dynamic = config.kind(name) == "dynamic" and asked.served > config.max_len
    if dynamic or (has_two_tables(config, name) and asked.served > config.original(name)):
        sentence = "LMDeploy takes one table for a step, by its longest text; keys in the cache keep that of their step"
        return (Caution(sentence, harmful=True),)
    return ()


def flags(changes: Mapping[str, Any], served: int) -> str:
    """Of `lmdeploy serve api_server`."""
    overrides = f"--hf-overrides {shlex.quote(json.dumps(changes))} " if changes else ""
    return f"--backend pytorch {overrides}--session-len {served}"


RULES = EngineRules(
    "lmdeploy",
    (
        VersionRange(
            (0, 18), (0, 18), "pytorch/nn/rotary_embedding.py, its backend and models of 0.18.0, read; not run"
        ),
    ),
    rotation,
    lambda config, version: LengthRule(math.inf, config.max_len),
    reads,
    flags,
    cautions,
)
