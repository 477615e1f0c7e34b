"""mlx-lm, as its source reads a config.json (0.32.2: models/, models/rope_utils.py, utils.py; run on a CPU):

where       most models read rope_theta and rope_scaling beside it, and not the rope_parameters that transformers 5
            writes: base and schedule of such a file are dropped without a word; a few read both, or these alone
yarn        truncated, its temperature that of mscale and mscale_all_dim, or 0.1 ln(factor) + 1; attention_factor is
            not read
longrope    long_factor for every text, at LongRoPE's own temperature for max_position_embeddings
dynamic     the base of what is read so far; keys in the cache keep that of their chunk
elsewhere   Mixtral, Qwen's mixtures, Gemma, Gemma 2, Cohere, GLM, StarCoder 2, StableLM, Phi, LFM2 and MiniMax-M2 read
            a base alone; Llama 4's text model too, but where it is a part of Llama 4
windows     of the models in WINDOWED; Llama's and Mistral's where layer_types says which layers have one
length      any
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
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
from ropewalk.engines.rules.standard import LATENT, TABLES, longrope_table, query_scale, yarn_table
from ropewalk.engines.rules.statement import (
    EngineReading,
    ExportRules,
    StatedModel,
    fold,
    is_lowered,
    lower,
    place_temperature,
    state_latent,
    yarn_mscale,
)
from ropewalk.errors import DoesNotFit

# The base where a config.json has no rope_theta beside its rope parameters; None: mlx-lm stops.
SCHEDULED: dict[str, float | None] = {
    **dict.fromkeys(("llama", "mistral", "smollm3", "olmo2", "olmoe", "seed_oss", "internlm3", "phi3"), 10_000.0),
    **dict.fromkeys(("bitnet", "deepseek_v3", "nemotron"), 10_000.0),
    **dict.fromkeys(("qwen3", "granite", "granitemoe", "exaone4", "apertus", "dots1", "qwen3_next")),
    **dict.fromkeys(("qwen2", "qwen2_vl_text", "qwen2_5_vl_text", "gemma3_text"), 1e6),
    **{"qwen3_vl_text": None, "gpt_oss": 150_000.0},
}
BASE_ALONE: dict[str, float | None] = {
    **dict.fromkeys(("gemma", "gemma2", "glm", "phi", "olmo"), 10_000.0),
    **dict.fromkeys(("qwen3_moe", "qwen3_vl_moe_text", "glm4", "glm4_moe", "stablelm", "helium", "ernie4_5")),
    **dict.fromkeys(("llama4_text", "minimax_m2")),
    **{"lfm2": 1e6, "mixtral": 1e6, "qwen2_moe": 1e6, "cohere": 8e6, "cohere2": 50_000.0, "starcoder2": 100_000.0},
}
ROPE_PARAMETERS = ("ministral3", "gemma4_text", "qwen3_5_text", "qwen3_5_moe_text")  # read these alone
EITHER = ("qwen3", "qwen3_vl_text", "lfm2")  # rope_parameters where it has no rope_theta or rope_scaling
LLAMA4 = "llama4"  # the whole, whose text model has a schedule, chunks and a scale of queries; alone it has none
# Wholes whose text model is handed to the code of its own type.
WHOLES = {
    *("llama4", "gemma3", "gemma4", "mistral3", "qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe"),
    *("qwen3_5", "qwen3_5_moe"),
}
NO_CODE = ("glm4v", "glm4v_moe", "arcee")  # not among its models/
WINDOWED = ("gemma3_text", "gemma4_text", "gpt_oss", "cohere2", "exaone4")
WINDOWED_BY_LAYER_TYPES = ("llama", "mistral", "ministral3", "smollm3")
LOCAL_BASE = "rope_local_base_freq"  # of Gemma 3's layers with a window
SHARE, ROTARY_DIM = "partial_rotary_factor", "rotary_dim"
SHARES = {
    **dict.fromkeys(("phi3", "stablelm", "glm4", "glm4_moe", "qwen3_next", "minimax_m2"), 1.0),
    **{"phi": 0.4, "nemotron": 0.5},
}
KINDS = {"phi3": ("default", "longrope"), "nemotron": ("default", "linear")}  # other types stop these
MSCALES = ("mscale", "mscale_all_dim")
YARN = ("factor", "original_max_position_embeddings", "beta_fast", "beta_slow", *MSCALES)


def rotation(config: RopeConfig, name: str, asked: Asked) -> Answer:
    """What mlx-lm's rotary module of one type of layer computes."""
    whole = config.part_of or config.model_type
    if whole in NO_CODE:
        return NoAnswer(
            "refused", f"mlx-lm has no code for {whole}: it stops at its model type", "rw.load computes what was meant"
        )
    if config.model_type not in (*SCHEDULED, *BASE_ALONE, *ROPE_PARAMETERS) or config.part_of not in ("", *WHOLES):
        return NoAnswer("unknown", f"mlx-lm's code for {whole} was not read")
    read = _read(config, name)
    if isinstance(read, NoAnswer):
        return read
    kind, part = read.kind(name), read.parts[name]
    if _reads_base_alone(config):
        return EngineRotation(formulas.plain(read.base(name), read.dims(name)))
    if kind not in KINDS.get(config.model_type, (kind,)):
        known = KINDS[config.model_type][-1]
        return NoAnswer("refused", f"mlx-lm stops at a schedule of {config.model_type} other than {known}, as {kind}")
    match kind:
        case "default" | "linear" | "llama3" | "dynamic" | "proportional":
            computed = EngineRotation(TABLES[kind](read, name, asked.text))
        case "yarn":
            temperature = yarn_mscale({**part, "factor": read.factor(name)}, part.get("mscale_all_dim") or 0.0)
            computed = EngineRotation(yarn_table(read, name, asked.text), temperature, logits=_logits(read, name))
        case "longrope":
            original = config.original(name)
            usual = formulas.longrope_temperature(config.max_len / original, original)
            computed = EngineRotation(longrope_table(read, name, long=True), usual)
        case _:
            return NoAnswer("refused", f"mlx-lm knows no rope type {kind!r}")
    scale = query_scale(config, name) if config.model_type == "ministral3" else None
    return computed._replace(query_scale=scale)


def _read(config: RopeConfig, name: str) -> RopeConfig | NoAnswer:
    """The config with what mlx-lm sees of a part: that depends on where it stands in config.json."""
    part = {key: value for key, value in config.parts[name].items() if key not in ("truncate", "alpha")}
    if not _is_read(config, name):
        part = {key: value for key, value in part.items() if key in LAYOUT - {"type", "rope_type"}}
    if config.written and config.model_type not in ROPE_PARAMETERS:
        default = {**SCHEDULED, **BASE_ALONE}[config.model_type]
        default = config.base(name) if config.model_type in EITHER else default
        local = name == "sliding_attention"
        base = config.written.get(LOCAL_BASE if local else "rope_theta", formulas.USUAL_BASE if local else default)
        if not isinstance(base, int | float):
            return NoAnswer("refused", f"mlx-lm stops without rope_theta beside the rope parameters: {OUTSIDE}")
        part["rope_theta"] = base
        share = config.written.get(SHARE, SHARES.get(config.model_type, 1.0))
        if isinstance(config.written.get(ROTARY_DIM), int):
            share = config.written[ROTARY_DIM] / config.head_dims[name]
        part[SHARE] = share if config.model_type in SHARES else 1.0
    return replace(config, parts={**config.parts, name: part})


OUTSIDE = "this config.json has them inside, as transformers 5 writes it"


def _is_read(config: RopeConfig, name: str) -> bool:
    """Whether mlx-lm finds the schedule of a part; a config without a file is taken as one that is written for it."""
    if name == "sliding_attention" and config.model_type not in ROPE_PARAMETERS:
        return False
    return not config.written or config.model_type in (*ROPE_PARAMETERS, *EITHER) or _has_scaling(config)


def _reads_base_alone(config: RopeConfig) -> bool:
    return config.model_type in BASE_ALONE and config.part_of != LLAMA4


def _has_scaling(config: RopeConfig) -> bool:
    return bool(config.written.get("rope_scaling"))


def _logits(config: RopeConfig, name: str) -> float:
    """The factor of all logits beside cos and sin, where keys are latent."""
    if config.model_type not in LATENT:
        return 1.0
    all_dim = float(config.parts[name].get("mscale_all_dim") or 0.0)
    return formulas.yarn_temperature(config.factor(name), all_dim) ** 2


def reads(config: RopeConfig, name: str, version: Version) -> frozenset[str]:
    """The keys of a part; none where mlx-lm looks elsewhere."""
    if not _is_read(config, name):
        return frozenset() if config.written and "rope_theta" not in config.written else LAYOUT
    if _reads_base_alone(config):
        return LAYOUT
    keys = YARN if config.kind(name) == "yarn" else READS.get(config.kind(name), ())
    scale = {"llama_4_scaling_beta"} if config.model_type == "ministral3" else set()
    return LAYOUT | scale | {*keys} - {"alpha", "short_factor", "short_mscale", "long_mscale"}


def reads_beside(config: RopeConfig, key: str) -> bool:
    """Windows, chunks, layers that do not rotate, and the scale of queries, in the models whose code has them."""
    if key == "sliding_window":
        by_type = config.model_type in WINDOWED_BY_LAYER_TYPES and "layer_types" in (config.written or config.text)
        return config.model_type in WINDOWED or by_type
    if key in ("attention_chunk_size", "attn_temperature_tuning"):
        return config.part_of == LLAMA4
    if key == "no_rope_layers" and config.part_of == LLAMA4:
        return is_every_fourth(config.text[key])
    return reads_what_is_declared(config, key)


def cautions(config: RopeConfig, name: str, asked: Asked) -> tuple[Caution, ...]:
    """A schedule that stands where mlx-lm does not look, and one that grows with the text."""
    if config.written and "rope_parameters" in config.written and not _is_read(config, name):
        return (Caution(f"mlx-lm reads rope_theta and rope_scaling beside the rope parameters: {OUTSIDE}", False),)
    if config.kind(name) == "dynamic" and asked.served > config.max_len:
        return (Caution("keys in mlx-lm's cache keep the table of the chunk that they were read in", harmful=True),)
    return ()


def rewrite(stated: StatedModel) -> EngineReading | DoesNotFit:
    """By name or pair by pair, with base and schedule beside the rope parameters, where mlx-lm looks for them."""
    kind = stated.text.model_type
    if kind not in (*SCHEDULED, *BASE_ALONE, *ROPE_PARAMETERS):
        return DoesNotFit("model", "one whose code in mlx-lm was read", kind)
    if kind in BASE_ALONE and stated.type != "default":
        return DoesNotFit("schedule", f"another base, which is all that mlx-lm reads of {kind}", stated.type)
    if kind == "mistral" and stated.text.sliding_window:  # and where every layer is named so, it stops
        sentence = "mlx-lm computes no window in Mistral's layers, and this model has one in each"
        return DoesNotFit.because("reach", sentence, remedy="leave window out, or set sliding_window to null")
    if stated.latent:
        reading = state_latent(stated)
        return reading if isinstance(reading, DoesNotFit) else reading._replace(written=_keys(stated))
    if _is_unknown(stated):
        lower(stated)
    folded = place_temperature(stated)
    if is_lowered(stated):
        if stated.interleaved:
            return DoesNotFit("schedule", "one with a type of its own where pairs are neighbours", stated.type)
        original = stated.parameters[0]["original_max_position_embeddings"]
        folded *= fold(stated, formulas.longrope_temperature(stated.length / original, original))
    elif stated.type == "yarn":
        _state_mscale(stated)
    if kind == "gemma3_text" and (reason := _why_no_gemma3(stated)):
        return reason
    return EngineReading(is_lowered(stated), folded, written=_keys(stated))


def _is_unknown(stated: StatedModel) -> bool:
    """Whether mlx-lm does not compute the schedule by its name."""
    if stated.text.model_type == "phi3":
        return stated.type != "default" and not is_lowered(stated)
    colder = stated.temperature < 1 or stated.parameters[0].get("factor") == 1
    return stated.type == "yarn" and (not stated.parameters[0].get("truncate", True) or colder)


def _state_mscale(stated: StatedModel) -> None:
    """YaRN's temperature under the name that mlx-lm reads; transformers reads attention_factor."""
    for part in stated.parameters:
        if not math.isclose(yarn_mscale(part, part.get("mscale_all_dim") or 0.0), stated.temperature, rel_tol=1e-9):
            part |= {"mscale": (stated.temperature - 1) / (0.1 * math.log(part["factor"])), "mscale_all_dim": 0.0}


def _why_no_gemma3(stated: StatedModel) -> DoesNotFit | None:
    """mlx-lm knows a period of the layers that attend to all tokens, and a base for the others."""
    if _period(stated) is None:
        return DoesNotFit("layer_types", "periodic, which is what mlx-lm computes", stated.text.layer_types)
    local = stated.text.rope_parameters["sliding_attention"]["rope_type"]
    if local != "default":
        return DoesNotFit("schedule", "another base in layers with a window, where mlx-lm reads no more", local)
    return None


def _period(stated: StatedModel) -> int | None:
    """Every how many layers attend to all tokens; None where they do not recur."""
    full = [kind == "full_attention" for kind in stated.text.layer_types]
    period = full.index(True) + 1 if any(full) else len(full) + 1
    return period if full == [(i + 1) % period == 0 for i in range(len(full))] else None


def _keys(stated: StatedModel) -> dict[str, Any]:
    """What mlx-lm reads beside the rope parameters; transformers takes the same from there."""
    text, part = stated.text, stated.parameters[0]
    if text.model_type in ROPE_PARAMETERS:
        return {}
    scheduled = {**part, "type": part["rope_type"]} if text.model_type == "phi3" else part
    keys = {"rope_theta": part["rope_theta"], "rope_scaling": None if stated.type == "default" else scheduled}
    if SHARE in part:
        keys[SHARE] = part[SHARE]
    if text.model_type == "gemma3_text":
        keys[LOCAL_BASE] = text.rope_parameters["sliding_attention"]["rope_theta"]
        keys["sliding_window_pattern"] = _period(stated)
    return keys


def flags(changes: Mapping[str, Any], served: int) -> str:
    """Of mlx_lm, which takes no key of a config and no length."""
    return "" if changes else "mlx_lm.server --model MODEL"


def command(place: str, stated: StatedModel) -> str:
    """Serves it."""
    return f"mlx_lm.server --model {place}"


RULES = EngineRules(
    "mlx",
    (VersionRange((0, 32), (0, 32), "models/ and utils.py of mlx-lm 0.32.2, read and run on a CPU"),),
    rotation,
    lambda config, version: LengthRule(math.inf, config.max_len),
    reads,
    flags,
    cautions,
    reads_beside=reads_beside,
    export=ExportRules(rewrite, command),
)
