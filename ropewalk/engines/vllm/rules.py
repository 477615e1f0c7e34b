"""vLLM, as it reads a config (layers/rotary_embedding, config/model.py, models/; 0.19.1 to 0.32.0 read, the rotary code
of seven of them run):

yarn        its table ends at original_max_position_embeddings * factor; beyond it rows are read that are not there
            (NaN). Before 0.30 its temperature is 0.1 ln(factor) + 1 times attn_factor, whatever attention_factor or
            mscale say
linear      the length it allows is max_position_embeddings * factor, except for Gemma 3. Before 0.30 that of yarn was
            the original length times factor; since then it is max_position_embeddings
longrope    its temperature is short_mscale and long_mscale; the server's length chooses the divisors
dynamic     one table: before 0.22 that of max_position_embeddings * factor, since then plain RoPE, which ends at
            max_position_embeddings
mrope       yarn with sections is the same yarn (0.32); its other schedules with sections were not read
latent      every schedule is DeepSeek's YaRN, its temperature that of mscale and mscale_all_dim
gpt-oss     always YaRN, at its own temperature
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
    llama3_table,
    longrope_table,
    standard_rotation,
    why_not_known,
    yarn_temperature,
)
from ropewalk.engines.rules.statement import (
    QUERY_SCALE,
    EngineReading,
    ExportRules,
    StatedModel,
    lower,
    read_as_deepseek_and_phi,
)
from ropewalk.engines.vllm.versions import ALWAYS_YARN, BY_TRANSFORMERS, EXACT_YARN_OF_AXES
from ropewalk.errors import DoesNotFit
from ropewalk.hf.probe.trained_lengths import DUAL_CHUNK

PLAIN_DYNAMIC, READS_ATTENTION_FACTOR, DEEPSEEK_BY_FACTOR = (0, 22), (0, 30), (0, 31)
LATEST = (0, 32)  # what was read of this version alone
# Their attention calls get_rope with the config's rope parameters, or with those of the layer's type.
AS_WRITTEN = {
    *("llama", "mistral", "ministral3", "mixtral", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "gemma", "gemma2"),
    *("gemma3_text", "gemma3", "gemma4_text", "gemma4", "phi3", "phimoe", "granite", "granitemoe", "stablelm"),
    *("falcon", "cohere", "cohere2", "nemotron", "minicpm3", "glm4", "olmoe", "exaone4", "apertus"),
    *("llama4_text", "internlm3"),
}
# These too; read in 0.32 alone.
AS_WRITTEN_LATEST = {
    *("glm4_moe", "lfm2", "lfm2_moe", "minimax_m2", "qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"),
    *("qwen3_vl_text", "qwen3_vl_moe_text", "qwen2_vl_text", "qwen2_5_vl_text", "ernie4_5_moe"),
    "glm4v_text",
}
NEIGHBOURS = ("glm4", "glm4v_text", "cohere", "cohere2", "ernie4_5_moe", *LATENT)  # pairs are neighbours
GPT_OSS = ("factor", "original_max_position_embeddings", "beta_fast", "beta_slow")
UNSCALED = ("longrope", "llama3")  # whose length is max_position_embeddings
YARN = ("factor", "original_max_position_embeddings", "beta_fast", "beta_slow", "truncate")


def rotation(config: RopeConfig, name: str, asked: Asked) -> Answer:
    """What vLLM's table of one type of layer holds."""
    if config.text.get(DUAL_CHUNK) and config.model_type.startswith(("qwen2", "qwen3")):
        remedy = (
            f"remove {DUAL_CHUNK} from its config.json, and serve no more than the length that was trained without it"
        )
        return NoAnswer("refused", f"vLLM stops at {DUAL_CHUNK}: the attention for it was removed in 0.11", remedy)
    if config.model_type in BY_TRANSFORMERS:
        return _transformers_rotation(config, name, asked)
    if config.model_type == ALWAYS_YARN:
        return _gpt_oss(config, name)
    if config.model_type in AS_WRITTEN_LATEST | {"glm4_moe_lite"} and asked.version < LATEST:
        return NoAnswer("unknown", f"vLLM's own code for {config.model_type} was read in 0.32 alone")
    if config.model_type in LATENT:
        return _latent(config, name, asked.version)
    if config.model_type not in AS_WRITTEN | AS_WRITTEN_LATEST:
        return NoAnswer("unknown", f"vLLM's own code for {config.model_type} was not read")
    answer = _table_by_type(config, name, asked)
    return answer if isinstance(answer, NoAnswer) else answer._replace(query_scale=_query_scale(config))


def _table_by_type(config: RopeConfig, name: str, asked: Asked) -> Answer:
    """get_rope's choice by the type."""
    kind, sections = config.kind(name), "mrope_section" in config.parts[name]
    if sections and kind != "default" and asked.version < LATEST:
        return NoAnswer("unknown", f"vLLM's {kind} for tokens that have several positions was not read")
    if sections and kind not in ("default", "yarn"):
        sentence = f"vLLM's module for {kind} takes one position a token, and this model's have several (mrope_section)"
        return NoAnswer("refused", sentence, "use yarn, or export it for Ropewalk's plugin")
    match kind:
        case "default":
            rows = table_length(config) * rows_a_token(config, name)
            return EngineRotation(formulas.plain(config.base(name), config.dims(name)), rows=rows)
        case "linear":
            table = formulas.plain(config.base(name), config.dims(name)) / config.factor(name)
            return EngineRotation(table, rows=math.ceil(config.max_len * config.factor(name)))
        case "dynamic":
            return _dynamic(config, name, asked.version)
        case "yarn":
            return EngineRotation(
                _yarn_table(config, name), _temperature(config, name, asked.version), _yarn_rows(config, name)
            )
        case "llama3":
            return EngineRotation(llama3_table(config, name, asked.text), rows=config.max_len)
        case "longrope":
            return _longrope(config, name, asked)
        case "proportional":
            share = config.parts[name].get("partial_rotary_factor", 1.0)
            return EngineRotation(
                formulas.proportional(config.base(name), config.dims(name), share), rows=config.max_len
            )
    return NoAnswer("refused", f"vLLM knows no rope type {kind!r}")


def table_length(config: RopeConfig) -> int:
    """The length that a model hands to get_rope: Cohere's has a key of its own for it."""
    return int((config.text.get("model_max_length") if config.model_type.startswith("cohere") else 0) or config.max_len)


def _dynamic(config: RopeConfig, name: str, version: Version) -> EngineRotation:
    base, dims, factor = config.base(name), config.dims(name), config.factor(name)
    alpha = config.parts[name].get("alpha")
    if alpha:
        return EngineRotation(formulas.rebased(base, dims, alpha), rows=config.max_len)
    if version >= PLAIN_DYNAMIC:
        return EngineRotation(formulas.plain(base, dims), rows=config.max_len)
    return EngineRotation(formulas.rebased(base, dims, factor**2 - factor + 1), rows=math.ceil(config.max_len * factor))


def _yarn_table(config: RopeConfig, name: str, truncate: bool | None = None) -> Any:
    part = config.parts[name]
    truncate = bool(part.get("truncate", True)) if truncate is None else truncate
    base, dims, betas = config.base(name), config.dims(name), formulas.betas_of(part)
    ramp_len = config.original(name) * rows_a_token(config, name)
    return formulas.yarn(base, dims, config.factor(name), ramp_len, betas, truncate)


def rows_a_token(config: RopeConfig, name: str) -> int:
    """How many rows a table has for each token: where tokens have several positions, those may exceed their number."""
    return 1 if "mrope_section" not in config.parts[name] or config.model_type in EXACT_YARN_OF_AXES else 4


def _yarn_rows(config: RopeConfig, name: str) -> int:
    return math.ceil(config.original(name) * rows_a_token(config, name) * config.factor(name))


def _temperature(config: RopeConfig, name: str, version: Version) -> float:
    """That of yarn."""
    part, factor = config.parts[name], config.factor(name)
    if version < READS_ATTENTION_FACTOR:
        scaled = formulas.yarn_temperature(factor) if part.get("apply_yarn_scaling", True) else 1.0
        return scaled * float(part.get("attn_factor", 1.0))
    stated_factor = part.get("attention_factor")
    return yarn_temperature(config, name) if stated_factor is None else float(stated_factor)


def _longrope(config: RopeConfig, name: str, asked: Asked) -> Answer:
    if config.model_type in NEIGHBOURS:
        return NoAnswer(
            "refused", "vLLM's longrope is for models whose pairs are halves of the head, and this one's are neighbours"
        )
    part, original = config.parts[name], config.original(name)
    long = asked.served > original
    usual = formulas.longrope_temperature(config.max_len / original, original)
    mscale = part.get("long_mscale" if long else "short_mscale")
    rows = config.max_len if long else original
    return EngineRotation(longrope_table(config, name, long), usual if mscale is None else float(mscale), rows)


def _gpt_oss(config: RopeConfig, name: str) -> Answer:
    missing = [key for key in GPT_OSS if key not in config.parts[name]]
    if missing:
        return NoAnswer(
            "refused", f"vLLM computes YaRN for gpt-oss whatever its config says, and stops without {missing[0]}"
        )
    return EngineRotation(
        _yarn_table(config, name), formulas.yarn_temperature(config.factor(name)), _yarn_rows(config, name)
    )


def _latent(config: RopeConfig, name: str, version: Version) -> Answer:
    """Plain RoPE, or DeepSeek's YaRN for every type."""
    part = config.parts[name]
    if config.kind(name) == "default":
        return EngineRotation(formulas.plain(config.base(name), config.dims(name)), rows=config.max_len)
    if "factor" not in part:
        return NoAnswer(
            "refused", "vLLM computes YaRN where keys are latent whatever the config says, and stops without factor"
        )
    factor, all_dim = config.factor(name), float(part.get("mscale_all_dim") or 0.0)
    temperature = formulas.yarn_temperature(factor, float(part.get("mscale", 1.0)))
    temperature /= formulas.yarn_temperature(factor, all_dim)
    if version < READS_ATTENTION_FACTOR:
        temperature *= float(part.get("attn_factor", 1.0))
    logits = formulas.yarn_temperature(factor, all_dim) ** 2 if _scales_logits(part, version) else 1.0
    return EngineRotation(_yarn_table(config, name, truncate=True), temperature, _yarn_rows(config, name), logits)


def _scales_logits(part: Mapping[str, Any], version: Version) -> bool:
    if version >= DEEPSEEK_BY_FACTOR:
        return part.get("attention_factor") != 1.0
    return bool(part.get("apply_yarn_scaling", True))


def _transformers_rotation(config: RopeConfig, name: str, asked: Asked) -> Answer:
    if asked.version < (0, 32):
        return NoAnswer("unknown", f"which code vLLM before 0.32 has for {config.model_type} was not read")
    return why_not_known(config, name) or standard_rotation(config, name, asked.text)


def _query_scale(config: RopeConfig) -> QueryScale | None:
    """Mistral's, which vLLM reads from `llama_4_scaling` and not from the rope parameters."""
    scaling = config.text.get("llama_4_scaling")
    if not scaling or config.model_type not in ("mistral", "ministral3"):
        return None
    return QueryScale(float(scaling["beta"]), int(scaling["original_max_position_embeddings"]))


def length(config: RopeConfig, version: Version) -> LengthRule:
    """The length that vLLM derives from a config; a longer one needs an environment variable."""
    longest = float(config.text.get("model_max_length") or config.max_len)
    longest = min(longest, config.tokenizer_len or longest)
    times = 1.0
    for name in config.parts if "gemma3" not in config.model_type else ():
        kind, factor = config.kind(name), config.parts[name].get("factor")
        if kind == "yarn" and version < READS_ATTENTION_FACTOR:
            longest = config.original(name)
        if kind not in UNSCALED and (kind != "yarn" or version < READS_ATTENTION_FACTOR):
            times = factor or times
    allowed = longest * times
    short = any(config.kind(name) == "longrope" for name in config.parts)
    default = config.text.get("original_max_position_embeddings") if short else None
    return LengthRule(allowed, int(default or allowed))


def reads(config: RopeConfig, name: str, version: Version) -> frozenset[str]:
    """The keys of a part that get_rope and the model hand on."""
    if config.model_type in BY_TRANSFORMERS:
        return frozenset(config.parts[name])
    if config.model_type == ALWAYS_YARN:
        return LAYOUT | {*GPT_OSS, "truncate"}
    latent = config.model_type in LATENT and config.kind(name) != "default"
    keys = {*YARN, "mscale", "mscale_all_dim"} - {"truncate"} if latent else {*READS.get(config.kind(name), YARN)}
    if version < READS_ATTENTION_FACTOR:
        keys |= (
            {"attn_factor", "extrapolation_factor", "apply_yarn_scaling"}
            if latent or config.kind(name) == "yarn"
            else set()
        )
    elif config.kind(name) == "yarn" and not latent:
        keys |= {"attention_factor", "mscale", "mscale_all_dim"}
    return LAYOUT | keys


def reads_beside(config: RopeConfig, key: str) -> bool:
    """Windows for every model, Cohere's length, and Mistral's scale of queries."""
    return key not in config.undeclared or key in ("sliding_window", "model_max_length", "llama_4_scaling")


def flags(changes: Mapping[str, Any], served: int) -> str:
    """Of `vllm serve`."""
    overrides = f"--hf-overrides {shlex.quote(json.dumps(changes))} " if changes else ""
    return f"{overrides}--max-model-len {served}"


SERVE = "vllm serve {place} --max-model-len {length}"  # with Ropewalk's plugin too


def rewrite(stated: StatedModel) -> EngineReading | DoesNotFit:
    """Use vLLM's schedule name if its table is long enough, else divisors per pair."""
    multiplies = "gemma3" not in stated.config.model_type  # a linear schedule's length by its factor
    if stated.has_axes and stated.type == "yarn" and stated.text.model_type not in EXACT_YARN_OF_AXES:
        rule = (
            "another base, since vLLM works out another YaRN where tokens of this model have several positions (M-RoPE)"
        )
        return DoesNotFit("schedule", rule, stated.type)
    if not stated.latent and (_ends_early(stated) or (stated.type == "linear" and stated.kinds and multiplies)):
        lower(stated)
    reading = read_as_deepseek_and_phi(stated)
    if isinstance(reading, DoesNotFit):
        return reading
    _state_query_scale(stated)
    if stated.type == "linear" and multiplies:
        stated.text.max_position_embeddings = math.ceil(stated.length / stated.parameters[0]["factor"])
    return reading


def _state_query_scale(stated: StatedModel) -> None:
    """Ministral 3's scale of queries, which vLLM reads under another name."""
    for part in stated.parameters:
        if QUERY_SCALE in part:
            length = part["original_max_position_embeddings"]
            stated.text.llama_4_scaling = {"beta": part[QUERY_SCALE], "original_max_position_embeddings": length}


def command(place: str, stated: StatedModel) -> str:
    """The shell command that serves the model."""
    return SERVE.format(place=place, length=stated.length)


def _ends_early(stated: StatedModel) -> bool:
    """Whether the table ends before the target length."""
    parameters = stated.parameters[0]
    return (
        stated.type == "yarn"
        and int(parameters["original_max_position_embeddings"] * parameters["factor"]) < stated.length
    )


RULES = EngineRules(
    "vllm",
    (
        VersionRange(
            (0, 19), (0, 21), "layers/rotary_embedding, config/model.py and models/ of 0.19.1 to 0.21.0, read"
        ),
        VersionRange(
            (0, 22), (0, 29), "layers/rotary_embedding, config/model.py and models/ of 0.22.0 to 0.29.0, read"
        ),
        VersionRange((0, 30), (0, 30), "layers/rotary_embedding, config/model.py and models/ of 0.30.0, read"),
        VersionRange(
            (0, 31),
            (0, 32),
            "layers/rotary_embedding, config/model.py and models/ of 0.31.0 and 0.32.0, read; 0.32.0 run",
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
