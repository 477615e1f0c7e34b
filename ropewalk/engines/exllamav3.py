"""exllamav3, as its source reads a config.json (1.6.5: util/rope.py, model/config.py, architecture/; not run):

yarn        its factor is max_position_embeddings / original_max_position_embeddings, not the config's; its
            temperature is attention_factor, or 0.1 ln(factor) + 1 (1 beside llama_4_scaling_beta): mscale is not read
            but where keys are latent
longrope    long_factor where max_position_embeddings is longer, for every text; LongRoPE's own temperature
Gemma 3     plain at the base 10,000 in layers with a window; types inside rope_parameters are not looked at
dynamic     refused
windows     of the models in WINDOWED alone
LFM2        layer_types, and not full_attn_idxs
DeepSeek    refused where its experts are in groups
length      any
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ropewalk.engines.rules import formulas
from ropewalk.engines.rules.rotation import (
    LAYOUT,
    READS,
    Answer,
    Asked,
    EngineRotation,
    EngineRules,
    LengthRule,
    NoAnswer,
    RopeConfig,
    Version,
    VersionRange,
    reads_what_is_declared,
)
from ropewalk.engines.rules.standard import TABLES, longrope_table, query_scale, standard_rotation, yarn_table

READ = {
    *("llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe", "phi3", "smollm3", "seed_oss", "arcee", "gpt_oss"),
    *("glm4", "glm4_moe", "cohere", "cohere2", "gemma2", "apertus", "dots1", "exaone4", "ministral3", "deepseek_v3"),
    *("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "qwen3_vl_text", "qwen3_vl_moe_text", "qwen2_5_vl_text"),
    *("glm4v_text", "lfm2", "minimax_m2"),
}
WHOLES = {  # whose text model it reads as such a model
    *("gemma3", "mistral3", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe", "glm4v"),
}
# Not among the names of its architectures.py.
NO_CODE = {
    *("llama4", "llama4_text", "nemotron", "granite", "granitemoe", "qwen2_vl", "qwen2_moe", "starcoder2", "stablelm"),
    *("phi", "phimoe", "gemma", "glm", "olmo", "olmo2", "olmoe", "internlm3", "helium", "deepseek_v2", "kimi_vl"),
}
WINDOWED = ("gemma3_text", "gpt_oss", "cohere2", "exaone4")
GEMMA3 = "gemma3_text"
GLOBAL_BASE = 1e6  # of its layers without a window, where the file has no rope_theta
YARN = ("original_max_position_embeddings", "attention_factor", "beta_fast", "beta_slow", "truncate")


def rotation(config: RopeConfig, name: str, asked: Asked) -> Answer:
    """What exllamav3's rotary module of one type of layer computes."""
    read = _gemma3(config, name) if config.model_type == GEMMA3 else config
    whole = config.part_of or config.model_type
    if whole in NO_CODE:
        return NoAnswer("refused", f"exllamav3 has no code for {whole}: it stops at an unknown architecture")
    if config.model_type not in (*READ, GEMMA3) or config.part_of not in ("", *WHOLES):
        return NoAnswer("unknown", f"exllamav3's code for {whole} was not read")
    if config.model_type == "lfm2" and config.written and "layer_types" not in config.written:
        sentence = "exllamav3 reads layer_types, which this config.json does not have, and no full_attn_idxs"
        return NoAnswer("refused", f"{sentence}: it looks for attention in the wrong layers, and stops")
    if config.model_type == "deepseek_v3" and config.written.get("n_group") not in (None, 1):
        return NoAnswer("refused", "exllamav3 stops at experts in groups (n_group)")
    kind = read.kind(name)
    match kind:
        case "default" | "linear" | "llama3" | "proportional":
            return EngineRotation(TABLES[kind](read, name, asked.text))
        case "yarn":
            return _yarn(read, name)
        case "longrope":
            original = read.original(name)
            usual = formulas.longrope_temperature(read.max_len / original, original)
            return EngineRotation(longrope_table(read, name, read.max_len > original), usual)
    return NoAnswer("refused", f"exllamav3 knows no rope type {kind!r}")


def _gemma3(config: RopeConfig, name: str) -> RopeConfig:
    """What it sees of the parts: rope_theta and rope_scaling beside them, and nothing of layers with a window."""
    if name == "sliding_attention":
        part: Mapping[str, Any] = {"rope_theta": formulas.USUAL_BASE}
    else:
        beside, scaled = config.written or config.parts[name], config.written.get("rope_scaling")
        base = beside.get("rope_theta")
        part = config.parts[name] if scaled or not config.written else {}
        part = {**part, "rope_theta": base if isinstance(base, int | float) else GLOBAL_BASE}
    return replace(config, parts={**config.parts, name: part})


def _yarn(config: RopeConfig, name: str) -> EngineRotation:
    part, original = config.parts[name], config.original(name)
    stated = part.get("original_max_position_embeddings") is not None
    factor = config.max_len / original if stated else config.factor(name)
    read = replace(config, parts={**config.parts, name: {**part, "factor": factor}})
    temperature, logits = formulas.yarn_temperature(factor), 1.0
    if part.get("llama_4_scaling_beta"):
        temperature = 1.0
    elif config.latent:
        known = standard_rotation(read, name, 1)
        temperature, logits = known.temperature, known.logits
    if part.get("attention_factor") is not None:
        temperature = float(part["attention_factor"])
    return EngineRotation(yarn_table(read, name, 1), temperature, logits=logits, query_scale=query_scale(read, name))


def reads(config: RopeConfig, name: str, version: Version) -> frozenset[str]:
    """The keys of a part."""
    if config.model_type == GEMMA3 and (name == "sliding_attention" or not config.written.get("rope_scaling")):
        return frozenset() if config.written and "rope_theta" not in config.written else LAYOUT
    kind = config.kind(name)
    keys = {*YARN, "llama_4_scaling_beta"} if kind == "yarn" else {*READS.get(kind, ())}
    keys |= {"mscale", "mscale_all_dim"} if config.latent and kind == "yarn" else set()
    return LAYOUT | keys - {"short_mscale", "long_mscale"}


def reads_beside(config: RopeConfig, key: str) -> bool:
    """Windows, and layers that do not rotate, in the models whose code has them."""
    return reads_what_is_declared(config, key) and (key != "sliding_window" or config.model_type in WINDOWED)


def flags(changes: Mapping[str, Any], served: int) -> str:
    """The cache of its loader, which takes no key of a config."""
    return "" if changes else f"-cs {served}"


RULES = EngineRules(
    "exllamav3",
    (VersionRange((1, 6), (1, 6), "util/rope.py, model/config.py and architecture/ of 1.6.5, read; not run"),),
    rotation,
    lambda config, version: LengthRule(math.inf, config.max_len),
    reads,
    flags,
    cautions=lambda config, name, asked: (),
    reads_beside=reads_beside,
)
