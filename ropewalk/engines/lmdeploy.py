"""LMDeploy's PyTorch backend, as its source reads a config (0.18.0: nn/rotary_embedding.py and models/; not run):

all         as transformers gives it, by the config's own types; its FoPE is not checked (hf/probe/fope.py)
dynamic     one table for a step, by its longest text; keys in the cache keep that of their step
longrope    the same, at LongRoPE's own temperature for max_position_embeddings; attention_factor is not read
Gemma 3     linear, whatever the config says, and a stop where it has no factor
Llama 4     every fourth layer does not rotate; no chunks, and no scale of queries
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
from ropewalk.engines.rules.range_keys import is_every_fourth
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
    reads_what_is_declared,
)
from ropewalk.engines.rules.standard import TABLES, has_two_tables, longrope_table, standard_rotation

READ = {
    *("llama", "mistral", "mixtral", "phi3", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "qwen3_next", "gpt_oss"),
    *("glm4", "glm4_moe", "glm4v_text", "gemma", "gemma2", "internlm3", "deepseek_v2", "deepseek_v3", "llama4_text"),
    *("qwen2_vl_text", "qwen2_5_vl_text", "qwen3_vl_text", "qwen3_vl_moe_text", "qwen3_5_text", "qwen3_5_moe_text"),
}
GEMMA3 = "gemma3_text"
WHOLES = {  # whose text model it reads as such a model
    *("gemma3", "llama4", "qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe", "glm4v"),
    *("llava", "llava_next", "internvl"),
}
# Not among the architectures of its models/module_map.py.
NO_CODE = {
    *("smollm3", "lfm2", "lfm2_moe", "minimax_m2", "cohere", "cohere2", "nemotron", "mistral3", "ministral3", "gemma4"),
    *("granite", "granitemoe", "olmo2", "olmo3", "olmoe", "exaone4", "seed_oss", "arcee", "apertus", "dots1"),
    *("stablelm", "starcoder2", "phi", "glm", "helium", "ernie4_5", "ernie4_5_moe", "falcon", "llama4_text"),
}
KINDS = ("default", "linear", "dynamic", "yarn", "longrope", "llama3")
YARN = ("factor", "original_max_position_embeddings", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate")


def rotation(config: RopeConfig, name: str, asked: Asked) -> Answer:
    """What LMDeploy's rotary module of one type of layer computes."""
    kind = config.kind(name)
    whole = config.part_of or config.model_type
    if whole in NO_CODE:
        return NoAnswer("refused", f"LMDeploy has no code for {whole}: it stops at its architecture")
    if config.model_type not in (*READ, GEMMA3) or config.part_of not in ("", *WHOLES):
        return NoAnswer("unknown", f"LMDeploy's code for {whole} was not read")
    if config.model_type == GEMMA3:
        return _gemma3(config, name)
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


def reads_beside(config: RopeConfig, key: str) -> bool:
    """What transformers' class of the config declares, but for Llama 4, of which most is a constant or missing."""
    if config.model_type == "llama4_text":
        return key == "no_rope_layers" and is_every_fourth(config.text[key])
    return reads_what_is_declared(config, key)


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
    reads_beside=reads_beside,
)
