"""llama.cpp, as its converter writes a model and as it computes it (b11434 and b11739, and the converter of 2026-08).

Architectures that were not run are known from 0c1e57098: conversion/, src/models, src/llama-context.cpp.

default, linear    unchanged
yarn               betas 32 and 1, truncated, at the temperature 0.1 ln(factor) + 1, whatever the config says
dynamic            dropped by the converter
llama3             a divisor for each pair, where the converter's class is that of Llama; elsewhere dropped
longrope           Phi-3's divisors, chosen by the context that is allocated, at LongRoPE's own temperature
rope_freqs         divisors among the weights, as `ropewalk export` writes them
proportional       Gemma 4's, as divisors
a GGUF file        as it says: nothing is converted
nothing            where an architecture's converter writes only its own keys (Gemma 2, StableLM); for Cohere the base
latent             yarn, as above, at the temperature of mscale_all_dim as of mscale, which scales all logits too
Ministral 3        yarn with its own betas, truncated, at mscale_all_dim's temperature, and its scale of queries
Nemotron           its factor, whatever the type, as linear
windows            of the models in WINDOWED alone; Phi's are off
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ropewalk.engines.llama_cpp.architectures import ARCHITECTURES
from ropewalk.engines.rules import formulas
from ropewalk.engines.rules.range_keys import is_every_fourth
from ropewalk.engines.rules.rotation import (
    LAYOUT,
    Answer,
    Asked,
    EngineRotation,
    EngineRules,
    LengthRule,
    NoAnswer,
    QueryScale,
    RopeConfig,
    Version,
    VersionRange,
)
from ropewalk.engines.rules.standard import LATENT, ROPE_FREQS, TABLES, longrope_table, standard_rotation
from ropewalk.engines.rules.statement import EngineReading, ExportRules, StatedModel, fold, lower, yarn_temperature
from ropewalk.errors import DoesNotFit

TENSOR = "rope.freqs.weight"  # of safetensors; rope_freqs.weight in a GGUF file
# Run with the tensor, and equal to transformers. Others were run and stop, or were not run.
READS_DIVISORS = ("llama", "mistral", "mixtral", "arcee", "apertus", "exaone4", "internlm3")
# Run by name too.
RUN = (*READS_DIVISORS, "qwen2", "qwen3", "granite", "smollm3", "seed_oss", "olmo2", "starcoder2", "gemma3_text")
# Read: the common part of the converter writes their base and schedule, their own part how much of a head rotates.
READ = (
    *("qwen2_moe", "qwen3_moe", "qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "qwen3_vl_text", "qwen3_vl_moe_text"),
    *("glm4", "glm4_moe", "gpt_oss", "lfm2", "lfm2_moe", "minimax_m2", "olmo3", "ernie4_5", "ernie4_5_moe"),
    *("granitemoe", "llama4_text", "gemma4_text", "qwen2_vl_text", "qwen2_5_vl_text", "glm4v_text"),
)
# Converted by Llama's class, which writes llama3's divisors.
LLAMA3 = ("llama", "mistral", "mixtral", "arcee", "llama4_text")
BASE_ALONE = ("cohere", "cohere2")
WINDOWED = ("gemma2", "gemma3_text", "gemma4_text", "cohere2", "gpt_oss", "exaone4", "olmo3", "granite_swa")
# Constants of the architecture, whatever the config says.
EVERY_FOURTH = ("smollm3", "llama4_text")  # layer does not rotate
LLAMA4_CHUNK = 8192  # of Llama 4, and the length by which it scales queries
DROPS_LLAMA3 = ("qwen2", "qwen3", "seed_oss", "olmo2", "starcoder2", "gemma3_text")
# Their converters skip the common part that writes base and schedule: both are dropped.
DROPS = {
    *("gemma", "gemma2", "stablelm", "phi", "phi3", "phimoe", "gpt_neox", "falcon", "falcon_h1", "glm", "chatglm"),
    *("dbrx", "codeshell", "minicpm3", "orion", "plamo", "plamo2", "openelm", "granitemoehybrid", "bamba", "jamba"),
    "nemotron_h",
}
YARN = ("factor", "original_max_position_embeddings")
READS = {
    "linear": ("factor",),
    "yarn": YARN,
    "llama3": (*YARN, "low_freq_factor", "high_freq_factor"),
    "longrope": ("original_max_position_embeddings", "short_factor", "long_factor"),
}


def rotation(config: RopeConfig, name: str, asked: Asked) -> Answer:
    """What a converted file computes in one type of layer."""
    kind, plain = config.kind(name), EngineRotation(formulas.plain(config.base(name), config.dims(name)))
    if config.of_file and config.model_type in RUN:
        return plain if name == "sliding_attention" else standard_rotation(config, name, asked.text)
    if config.model_type == "phi3":
        return _phi3(config, name, asked)
    if config.model_type in DROPS:
        return EngineRotation(formulas.plain(formulas.USUAL_BASE, config.dims(name)))
    if config.model_type in LATENT:
        return _latent(config, name)
    if config.model_type == "ministral3":
        return _ministral(config, name)
    if config.model_type == "nemotron":
        return plain._replace(inv_freq=plain.inv_freq / float(config.parts[name].get("factor") or 1))
    if config.model_type in BASE_ALONE:
        return plain
    if config.model_type not in RUN and config.model_type not in READ:
        return NoAnswer("unknown", f"llama.cpp was not run with {config.model_type}")
    if name == "sliding_attention":  # the schedule is that of the other layers
        return plain
    match kind:
        case "default" | "dynamic":
            return plain
        case "linear":
            return EngineRotation(TABLES[kind](config, name, asked.text))
        case "yarn":
            base, dims, factor = config.base(name), config.dims(name), config.factor(name)
            return EngineRotation(
                formulas.yarn(base, dims, factor, config.original(name)), formulas.yarn_temperature(factor)
            )
        case "proportional" if config.model_type == "gemma4_text":
            share = config.parts[name].get("partial_rotary_factor", 1.0)
            return EngineRotation(formulas.proportional(config.base(name), config.dims(name), share))
        case "llama3":
            return _llama3(config, name, plain)
        case "rope_freqs":
            return _divisors_in_weights(config, name)
    return NoAnswer("unknown", f"what llama.cpp's converter does with {kind!r} in {config.model_type} was not run")


def _latent(config: RopeConfig, name: str) -> Answer:
    """Plain RoPE, or YaRN at the ratio of both mscales, which are taken to be equal."""
    kind, base, dims = config.kind(name), config.base(name), config.dims(name)
    if kind != "yarn":
        known = kind in ("default", "dynamic")
        sentence = f"what llama.cpp's converter does with {kind!r} where keys are latent was not read"
        return EngineRotation(formulas.plain(base, dims)) if known else NoAnswer("unknown", sentence)
    factor, all_dim = config.factor(name), float(config.parts[name].get("mscale_all_dim") or 0.0)
    temperature = 1.0 if all_dim else formulas.yarn_temperature(factor)
    logits = (temperature * formulas.yarn_temperature(factor, all_dim)) ** 2
    return EngineRotation(formulas.yarn(base, dims, factor, config.original(name)), temperature, logits=logits)


def _ministral(config: RopeConfig, name: str) -> Answer:
    """YaRN alone, with its betas, and the scale of queries."""
    part = config.parts[name]
    missing = [key for key in ("mscale_all_dim", "llama_4_scaling_beta") if part.get(key) is None]
    if config.kind(name) != "yarn" or missing:
        sentence = (
            "llama.cpp's converter stops where Ministral 3 has no yarn with mscale_all_dim and its scale of queries"
        )
        return NoAnswer("refused", sentence)
    factor, all_dim, original = config.factor(name), float(part["mscale_all_dim"]), config.original(name)
    temperature = formulas.yarn_temperature(factor) / formulas.yarn_temperature(factor, all_dim)
    table = formulas.yarn(config.base(name), config.dims(name), factor, original, formulas.betas_of(part))
    scale = QueryScale(float(part["llama_4_scaling_beta"]), original)
    return EngineRotation(table, temperature, query_scale=scale)


def _llama3(config: RopeConfig, name: str, plain: EngineRotation) -> Answer:
    if config.model_type in LLAMA3:
        return EngineRotation(TABLES["llama3"](config, name, 1))
    if config.model_type in DROPS_LLAMA3:
        return plain
    return NoAnswer(
        "unknown", f"whether llama.cpp's converter writes llama3's divisors for {config.model_type} was not run"
    )


def _divisors_in_weights(config: RopeConfig, name: str) -> Answer:
    """Divisors among the weights."""
    if config.divisors is None:
        return NoAnswer(
            "refused", "the config announces rope.freqs.weight, and the weights beside it have no such tensor"
        )
    if config.model_type not in READS_DIVISORS:
        return NoAnswer("refused", f"llama.cpp reads no divisors in {config.model_type}")
    return EngineRotation(TABLES[ROPE_FREQS](config, name, 1))


def _phi3(config: RopeConfig, name: str, asked: Asked) -> Answer:
    """LongRoPE as its authors compute it, but for `attention_factor`; the context chooses the divisors."""
    if config.kind(name) == "default":
        return EngineRotation(formulas.plain(config.base(name), config.dims(name)))
    if config.kind(name) != "longrope":
        return NoAnswer("unknown", f"what llama.cpp's converter does with {config.kind(name)!r} in phi3 was not run")
    original = config.original(name)
    temperature = formulas.longrope_temperature(config.max_len / original, original)
    return EngineRotation(longrope_table(config, name, asked.served > original), temperature)


def length(config: RopeConfig, version: Version) -> LengthRule:
    """Any context; without -c that of the file, which is max_position_embeddings, or Cohere's model_max_length."""
    longer = config.text.get("model_max_length") if config.model_type == "cohere" else None
    return LengthRule(math.inf, int(longer or config.max_len))


def reads(config: RopeConfig, name: str, version: Version) -> frozenset[str]:
    """The keys of a part that change what is computed; betas and attention_factor are written, and overridden."""
    kind = config.kind(name)
    if config.of_file:
        return LAYOUT | set(config.parts[name])
    if (config.model_type in (*DROPS, *BASE_ALONE) and config.model_type != "phi3") or name == "sliding_attention":
        return LAYOUT
    if config.model_type in LATENT:
        return LAYOUT | {*YARN, "mscale_all_dim"}
    if config.model_type == "ministral3":
        return LAYOUT | {*YARN, "mscale_all_dim", "beta_fast", "beta_slow", "llama_4_scaling_beta"}
    dropped = kind == "llama3" and config.model_type in DROPS_LLAMA3
    return LAYOUT | ({*READS.get(kind, ())} if not dropped else set())


def reads_beside(config: RopeConfig, key: str) -> bool:
    """What the converter writes, and what the architecture fixes as the config says it."""
    value = config.text.get(key)
    if key == "sliding_window":
        return config.model_type in WINDOWED
    if key == "no_rope_layers":
        return config.model_type in EVERY_FOURTH and is_every_fourth(value or [])
    if key in ("attention_chunk_size", "attn_temperature_tuning"):
        fixed = config.text.get("floor_scale") if key == "attn_temperature_tuning" else value
        return config.model_type == "llama4_text" and fixed == LLAMA4_CHUNK
    return key == "model_max_length" and config.model_type == "cohere"


def flags(changes: Mapping[str, Any], served: int) -> str:
    """Of `llama-server`; a converted file takes no other schedule."""
    return "" if changes else f"-c {served}"


FILE = "model.gguf"


def rewrite(stated: StatedModel) -> EngineReading | DoesNotFit:
    """By name where that computes it, else by divisors among the weights and a temperature in the queries."""
    if stated.window is not None:
        return DoesNotFit.because("reach", "llama.cpp's converter writes no window but the model's own")
    if stated.latent and stated.type != "default":
        return DoesNotFit("schedule", "another base where keys are latent", stated.type)
    if stated.text.model_type in DROPS:
        rule = "of a model whose base and schedule llama.cpp's converter writes down"
        return DoesNotFit("schedule", rule, f"{stated.type} of {stated.text.model_type}")
    temperature, unrun = _yarn_temperature(stated), stated.text.model_type not in RUN
    if temperature is not None and math.isclose(stated.temperature, temperature, rel_tol=1e-6):
        return EngineReading(lowered=False, unrun=unrun)
    if stated.text.model_type in READS_DIVISORS and not stated.kinds:
        lower(stated)
        announced = {"rope_type": ROPE_FREQS, "rope_theta": stated.parameters[0]["rope_theta"]}
        return EngineReading(True, fold(stated), divisors=True, written={"rope_parameters": announced})
    if stated.type == "yarn" and not stated.reaches_all:
        sentence = "llama.cpp gives YaRN's temperature to what rotates, and this one multiplies whole logits"
        return DoesNotFit.because("temperature", sentence, remedy="say over=rotating, or use pi, ntk or abf")
    if temperature is None:
        rule = "linear, another base, or yarn with betas 32 and 1, truncated, "
        return DoesNotFit("schedule", f"{rule}which is what llama.cpp knows of {stated.text.model_type}", stated.type)
    return EngineReading(lowered=False, folded=fold(stated, temperature), unrun=unrun)


def command(place: str, stated: StatedModel) -> str:
    """Serves it, converted first where we write no GGUF. The file holds the schedule; no flag is to contradict it."""
    served = f"-c {stated.length}"
    if stated.text.model_type in ARCHITECTURES:
        return f"llama-server -m {place}/{FILE} {served}"
    return f"python convert_hf_to_gguf.py {place} --outfile {place}.gguf && llama-server -m {place}.gguf {served}"


def _yarn_temperature(stated: StatedModel) -> float | None:
    """The factor of cos and sin under llama.cpp's schedule of this name; None if its table is another."""
    if stated.type in ("default", "linear"):
        return 1.0
    if stated.type != "yarn" or not stated.reaches_all:
        return None
    parameters = stated.parameters[0]
    betas = (parameters.get("beta_fast") or 32, parameters.get("beta_slow") or 1)
    usual = betas == (32, 1) and parameters.get("truncate", True)
    return yarn_temperature(parameters["factor"]) if usual else None


RULES = EngineRules(
    "llama.cpp",
    (
        VersionRange(
            (11434,),
            (11739,),
            "conversion/, src/models and llama-context.cpp, read (b11434; 0c1e57098); b11739 run",
        ),
    ),
    rotation,
    length,
    reads,
    flags,
    cautions=lambda config, name, asked: (),
    export=ExportRules(rewrite, command),
    reads_beside=reads_beside,
)
