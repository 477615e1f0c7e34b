"""SGLang, as its source reads a config (0.5.22 and 0.5.23: layers/rotary_embedding, models/; not run):

yarn        its temperature is that of mscale and mscale_all_dim, or 0.1 ln(factor) + 1, times attn_factor; its table
            grows with the text
linear      its table is right up to max_position_embeddings * factor; so is that of dynamic, which is the one of that
            length
longrope    its temperature is short_mscale and long_mscale; divisors are chosen by the tokens that are read at once
latent      every schedule is DeepSeek's YaRN, its temperature that of mscale and mscale_all_dim
elsewhere   Mixtral, Gemma, Gemma 2, StarCoder 2 and StableLM read rope_theta and no schedule
mrope       yarn with sections is the same yarn, and stops at mscale
in part     Qwen3-Next and Qwen3.5 read partial_rotary_factor beside the rope parameters (else a quarter of the head),
            Qwen3-Next its base too (else 10,000), where transformers 5 does not write them
no code     a model that it has no code of is computed by transformers'
windows     of the models in WINDOWED alone; the others read all keys
length      max_position_embeddings, times factor where the config does not state the original length
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Mapping
from dataclasses import replace
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
    QueryScale,
    RopeConfig,
    Version,
    VersionRange,
)
from ropewalk.engines.rules.standard import (
    LATENT,
    TABLES,
    has_two_tables,
    longrope_table,
    standard_rotation,
    why_not_known,
    yarn_table,
)
from ropewalk.engines.rules.statement import (
    QUERY_SCALE,
    EngineReading,
    ExportRules,
    StatedModel,
    read_as_deepseek_and_phi,
)
from ropewalk.errors import DoesNotFit
from ropewalk.hf.probe.trained_lengths import DUAL_CHUNK

AS_WRITTEN = {
    *("llama", "mistral", "ministral3", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "phi3", "phimoe"),
    *("gpt_oss", "glm4", "granite", "olmo2", "exaone4", "llama4_text", "cohere", "cohere2", "apertus"),
    *("glm4_moe", "lfm2", "lfm2_moe", "minimax_m2", "qwen3_vl_text", "qwen3_vl_moe_text", "ernie4_5", "ernie4_5_moe"),
    *("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "qwen2_vl_text", "qwen2_5_vl_text", "glm4v_text"),
}
A_QUARTER = ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text")
NO_CODE = ("smollm3", "seed_oss", "nemotron", "olmo3", "glm", "cwm")  # transformers' own runs
# Whose modules hand a window, chunks, or layers that do not rotate, to the attention.
WINDOWED = ("gemma2", "gemma3_text", "gemma4_text", "cohere2", "gpt_oss", "exaone4", "ministral3", "llama4_text")
ONE_CHUNK = ("qwen2", "qwen2_moe", "qwen3_moe", "glm4")  # whose rotary module is that of dual chunk attention
BASE_ALONE = {"mixtral", "gemma", "gemma2", "starcoder2", "stablelm"}
BY_TRANSFORMERS = {"gemma3_text"}  # its rotary module calls ROPE_INIT_FUNCTIONS
NEIGHBOURS = ("glm4", "glm4v_text", "cohere", "cohere2", "ernie4_5", "ernie4_5_moe")
QUERY_LENGTH = 16_384  # of Ministral 3, where the config states none beside its rope parameters
LENGTHS = ("max_sequence_length", "seq_length", "max_seq_len", "model_max_length")  # before max_position_embeddings
MSCALES = ("mscale", "mscale_all_dim")
YARN = ("factor", "original_max_position_embeddings", "attn_factor", "extrapolation_factor", "beta_fast", "beta_slow")


def rotation(config: RopeConfig, name: str, asked: Asked) -> Answer:
    """What SGLang's table of one type of layer holds."""
    if config.text.get(DUAL_CHUNK) and config.model_type in ONE_CHUNK:
        sentence = f"SGLang has the rotary module of {DUAL_CHUNK}, and no attention that takes its five queries a token"
        remedy = f"remove {DUAL_CHUNK} from its config.json, and serve no more than what was trained without it"
        return NoAnswer("refused", sentence, remedy)
    if config.model_type in NO_CODE:
        return why_not_known(config, name) or standard_rotation(config, name, asked.text)
    if config.model_type in BASE_ALONE:
        return EngineRotation(formulas.plain(config.base(name), config.dims(name)))
    if config.model_type in BY_TRANSFORMERS:
        alone = replace(config, parts={**config.parts, name: {**config.parts[name], "rope_type": "default"}})
        read = alone if name == "sliding_attention" else config
        return why_not_known(read, name) or standard_rotation(read, name, asked.text)
    if config.model_type in LATENT:
        return _latent(config, name)
    if config.model_type == "gemma4_text":
        part = {key: value for key, value in config.parts[name].items() if key in LAYOUT}
        return _table_by_type(replace(config, parts={**config.parts, name: part}), name, asked)
    if config.model_type not in AS_WRITTEN:
        return NoAnswer("unknown", f"SGLang's code for {config.model_type} was not read")
    answer = _table_by_type(config, name, asked)
    return answer if isinstance(answer, NoAnswer) else answer._replace(query_scale=_query_scale(config, name))


def _table_by_type(config: RopeConfig, name: str, asked: Asked) -> Answer:
    """get_rope's choice by the type."""
    kind, part = config.kind(name), config.parts[name]
    if config.model_type in A_QUARTER:
        beside = config.written or config.text
        part = {**part, "partial_rotary_factor": beside.get("partial_rotary_factor", 0.25)}
        if config.model_type == "qwen3_next" and config.written:
            part["rope_theta"] = beside.get("rope_theta", formulas.USUAL_BASE)
        config = replace(config, parts={**config.parts, name: part})
    if "mrope_section" in part and kind not in ("default", "yarn"):
        sentence = (
            f"SGLang's module for {kind} takes one position a token, and this model's have several (mrope_section)"
        )
        return NoAnswer("refused", sentence, "use yarn")
    if "mrope_section" in part and kind == "yarn" and any(key in part for key in MSCALES):
        return NoAnswer("refused", "SGLang's yarn for positions of several axes stops at mscale and mscale_all_dim")
    match kind:
        case "default" | "llama3":
            return EngineRotation(TABLES[kind](config, name, asked.text))
        case "linear":
            return EngineRotation(
                TABLES[kind](config, name, asked.text), rows=math.ceil(config.max_len * config.factor(name))
            )
        case "dynamic":
            return _dynamic(config, name)
        case "yarn":
            usual = formulas.yarn_temperature(config.factor(name))
            scaled = _mscale(config, name) if all(part.get(key) is not None for key in MSCALES) else usual
            return EngineRotation(yarn_table(config, name, asked.text), scaled * float(part.get("attn_factor", 1.0)))
        case "longrope":
            return _longrope(config, name, asked)
        case "proportional":
            share = part.get("partial_rotary_factor", 1.0)
            return EngineRotation(formulas.proportional(config.base(name), config.dims(name), share))
    return NoAnswer("refused", f"SGLang knows no rope type {kind!r}")


def _mscale(config: RopeConfig, name: str) -> float:
    part, factor = config.parts[name], config.factor(name)
    mscale, all_dim = float(part.get("mscale", 1.0)), float(part.get("mscale_all_dim") or 0.0)
    return formulas.yarn_temperature(factor, mscale) / formulas.yarn_temperature(factor, all_dim)


def _dynamic(config: RopeConfig, name: str) -> EngineRotation:
    base, dims, factor = config.base(name), config.dims(name), config.factor(name)
    alpha = config.parts[name].get("alpha")
    if alpha:
        return EngineRotation(formulas.rebased(base, dims, alpha), rows=config.max_len)
    return EngineRotation(formulas.rebased(base, dims, factor**2 - factor + 1), rows=math.ceil(config.max_len * factor))


def _longrope(config: RopeConfig, name: str, asked: Asked) -> Answer:
    if config.model_type in NEIGHBOURS:
        return NoAnswer(
            "refused",
            "SGLang's longrope is for models whose pairs are halves of the head, and this one's are neighbours",
        )
    part, original = config.parts[name], config.original(name)
    long = asked.text > original
    usual = formulas.longrope_temperature(config.max_len / original, original)
    mscale = part.get("long_mscale" if long else "short_mscale")
    return EngineRotation(
        longrope_table(config, name, long), usual if mscale is None else float(mscale), config.max_len
    )


def _latent(config: RopeConfig, name: str) -> Answer:
    """Plain RoPE, or DeepSeek's YaRN for every type."""
    part = config.parts[name]
    if config.kind(name) == "default":
        return EngineRotation(formulas.plain(config.base(name), config.dims(name)))
    truncated = replace(config, parts={**config.parts, name: {**part, "truncate": True}})
    temperature = _mscale(config, name) * float(part.get("attn_factor", 1.0))
    scales = part.get("apply_yarn_scaling", True)
    all_dim = float(part.get("mscale_all_dim") or 0.0)
    logits = formulas.yarn_temperature(config.factor(name), all_dim) ** 2 if scales else 1.0
    return EngineRotation(yarn_table(truncated, name, 1), temperature, logits=logits)


def _query_scale(config: RopeConfig, name: str) -> QueryScale | None:
    beta = config.parts[name].get("llama_4_scaling_beta")
    if not beta or config.model_type != "ministral3":
        return None
    return QueryScale(float(beta), int(config.text.get("original_max_position_embeddings") or QUERY_LENGTH))


def length(config: RopeConfig, version: Version) -> LengthRule:
    """The length that SGLang derives; a longer one needs an environment variable, and is not served here."""
    longest = next((config.text[key] for key in LENGTHS if config.text.get(key)), config.max_len)
    part = config.parts.get("", {})
    states_length = "original_max_position_embeddings" in part or part.get("rope_type") == "llama3"
    allowed = int(longest * (1 if states_length else part.get("factor") or 1))
    return LengthRule(allowed, allowed)


def reads(config: RopeConfig, name: str, version: Version) -> frozenset[str]:
    """The keys of a part that get_rope and the model hand on."""
    kind = config.kind(name)
    if config.model_type in BASE_ALONE or (config.model_type in BY_TRANSFORMERS and name == "sliding_attention"):
        return LAYOUT
    if config.model_type in NO_CODE:
        return frozenset(config.parts[name])
    if config.model_type in LATENT and kind != "default":
        return LAYOUT | {*YARN, *MSCALES}
    scale = {"llama_4_scaling_beta"} if config.model_type == "ministral3" else set()
    return LAYOUT | scale | {*READS.get(kind, (*YARN, *MSCALES, "truncate"))}


def reads_beside(config: RopeConfig, key: str) -> bool:
    """What a model's own code hands on; the lengths for every model."""
    if key in LENGTHS or config.model_type in NO_CODE:
        return key in LENGTHS or key not in config.undeclared
    return config.model_type in WINDOWED and key not in config.undeclared


def flags(changes: Mapping[str, Any], served: int) -> str:
    """Of `sglang.launch_server`."""
    overrides = f"--json-model-override-args {shlex.quote(json.dumps(changes))} " if changes else ""
    return f"{overrides}--context-length {served}"


def cautions(config: RopeConfig, name: str, asked: Asked) -> tuple[Caution, ...]:
    """A text that is read in chunks meets both sets of divisors."""
    if config.model_type in BASE_ALONE or not has_two_tables(config, name) or asked.served <= config.original(name):
        return ()
    sentence = (
        "SGLang chooses the divisors by the tokens that it reads at once; earlier keys in its cache keep the others"
    )
    return (Caution(sentence, harmful=True),)


def rewrite(stated: StatedModel) -> EngineReading | DoesNotFit:
    """By name or pair by pair, where the architecture reads more than a base."""
    kind = stated.text.model_type
    if kind in BASE_ALONE and stated.type != "default":
        return DoesNotFit("schedule", f"another base, which is all that SGLang reads of {kind}", stated.type)
    reading = read_as_deepseek_and_phi(stated)
    if isinstance(reading, DoesNotFit):
        return reading
    for part in stated.parameters if kind in A_QUARTER else ():  # it looks for them beside the others
        stated.text.rope_theta = part["rope_theta"]
        stated.text.partial_rotary_factor = part.get("partial_rotary_factor", 1.0)
    for part in stated.parameters:
        if QUERY_SCALE in part:  # beside the rope parameters it looks for the length of this scale
            stated.text.original_max_position_embeddings = part["original_max_position_embeddings"]
    return reading


def command(place: str, stated: StatedModel) -> str:
    """Serves it."""
    return f"python -m sglang.launch_server --model-path {place} --context-length {stated.length}"


RULES = EngineRules(
    "sglang",
    (
        VersionRange(
            (0, 5, 22), (0, 5, 23), "srt/layers/rotary_embedding, srt/models and srt/configs of 0.5.23, read; not run"
        ),
    ),
    rotation,
    length,
    reads,
    flags,
    cautions,
    export=ExportRules(rewrite, command),
    reads_beside=reads_beside,
)
