"""Ollama, as its source reads a checkpoint (0.33.0 at fb30760: convert/ and x/models/; not run). It has two runners.

ollama       a GGUF file by llama.cpp, with its rules; a folder is converted by Ollama itself first: of most models
             rope_theta beside the rope parameters alone; of a Llama `type: linear` and `rope_type: llama3`; of Qwen 2
             and Qwen 3 VL no schedule, and a stop at a factor, which it takes for a list; of Gemma 3 `rope_type: yarn`,
             else linear by 8 where max_position_embeddings is 131,072 or more (llama/compat/). Of the models in
             AS_LLAMA_CPP it writes what llama.cpp's converter writes. Everything else is dropped without a word
ollama-mlx   a folder by MLX: plain RoPE, at the rope_theta that stands beside the rope parameters
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ropewalk.engines.llama_cpp import rules as llama_cpp
from ropewalk.engines.rules import formulas
from ropewalk.engines.rules.rotation import (
    LAYOUT,
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
from ropewalk.engines.rules.standard import TABLES, llama3_table

LOCAL_BASE = "rope_local_base_freq"  # of Gemma 3's layers with a window
# By model type of the whole, here and below: the names of convert/convert.go. Qwen's, without a schedule:
QWEN = ("qwen2", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe")
# Written as llama.cpp's converter writes them, where the schedule is one of these.
AS_LLAMA_CPP = {
    **dict.fromkeys(("deepseek_v3", "gpt_oss", "mistral3", "ministral3"), ("yarn",)),
    **dict.fromkeys(("cohere", "lfm2", "qwen3_5", "qwen3_5_moe"), ("default",)),
    **{"llama4": ("default", "llama3"), "phi3": ("longrope",)},
}
INSIDE = ("mistral3", "ministral3", "lfm2", "qwen3_5", "qwen3_5_moe")  # these read rope_parameters
NO_CODE = {
    *("qwen3", "qwen3_moe", "qwen2_vl", "qwen2_moe", "mistral", "glm4", "glm4_moe", "glm4v", "smollm3", "minimax_m2"),
    *("nemotron", "llama4_text", "granite", "granitemoe", "cohere2", "olmo2", "exaone4", "seed_oss", "starcoder2"),
    *("stablelm", "phi", "phimoe", "glm", "arcee", "apertus", "dots1", "ernie4_5", "deepseek_v2", "internlm3"),
}
LONG_GEMMA, GEMMA_FACTOR = 131_072, 8.0  # llama/compat/ takes a Gemma 3 of this length for one with this factor
# The base where a config.json has no rope_theta beside its rope parameters.
BY_MLX = {"llama": 10_000.0, "qwen3": 1e6, "gemma3_text": 1e6}
NESTED = ("qwen3_5_text", "qwen3_next")  # these read the base inside rope_parameters, and no schedule either


def rotation(config: RopeConfig, name: str, asked: Asked) -> Answer:
    """What llama.cpp computes from a GGUF file, or from one that Ollama makes of a folder."""
    if not config.written:
        return llama_cpp.rotation(config, name, asked)
    whole = config.part_of or config.model_type
    if whole in NO_CODE:
        return NoAnswer("refused", f"Ollama's converter has no code for {whole}: it stops at its architecture", BY_FILE)
    if whole in ("gemma3", "gemma3_text"):
        return _gemma3(config, name)
    if whole in AS_LLAMA_CPP or whole == "qwen3_next":
        return _why_not_written(config, name, whole) or llama_cpp.rotation(config, name, asked)
    if whole not in ("llama", *QWEN):
        return NoAnswer("unknown", f"what Ollama's converter makes of {whole} was not read", BY_FILE)
    base, scaling = _base(config, name, {}), config.written.get("rope_scaling") or {}
    if base is None:
        return NoAnswer("unknown", f"what {whole} computes without rope_theta was not run", BY_FILE)
    if whole in QWEN and ("factor" in scaling or scaling.get("type") not in (None, "", "mrope", "default")):
        return NoAnswer("refused", f"Ollama's converter stops at {config.kind(name)} in {whole}", BY_FILE)
    if whole == "llama" and config.dims(name) * config.text["num_attention_heads"] != config.text["hidden_size"]:
        sentence = "Ollama's converter gives Llama's heads the length hidden_size / num_attention_heads, by which"
        return NoAnswer("refused", f"{sentence} llama.cpp stops: these have {config.dims(name)} dimensions", BY_FILE)
    if whole == "llama" and scaling.get("type") == "linear":
        return EngineRotation(TABLES["linear"](config, name, asked.text))
    if whole == "llama" and scaling.get("rope_type") == "llama3":
        return EngineRotation(llama3_table(config, name, asked.text))
    return EngineRotation(formulas.plain(base, config.dims(name)))


def _gemma3(config: RopeConfig, name: str) -> Answer:
    """What is written of the text model alone, and of one in a whole nothing: then all is as in the first releases."""
    alone, dims = config.part_of == "", config.dims(name)
    beside = config.written if alone else {}
    base = _base(replace(config, written={"rope_theta": None, **beside}), name, {"gemma3_text": 1e6}) or 1e6
    scaling = beside.get("rope_scaling") or {}
    if name == "sliding_attention":
        return EngineRotation(formulas.plain(base, dims))
    if scaling.get("rope_type") == "yarn":
        factor = config.factor(name)
        return EngineRotation(
            formulas.yarn(base, dims, factor, config.original(name)), formulas.yarn_temperature(factor)
        )
    long = not alone or (beside.get("max_position_embeddings") or 0) >= LONG_GEMMA
    return EngineRotation(formulas.plain(base, dims) / (GEMMA_FACTOR if long else 1.0))


def _why_not_written(config: RopeConfig, name: str, whole: str) -> NoAnswer | None:
    """Why its file is not the one that llama.cpp's converter writes; None where it is."""
    kind, why = config.kind(name), ""
    if whole == "qwen3_next":
        why = "makes Qwen 3.5 of Qwen3-Next, which llama.cpp does not load without mrope_section"
    elif whole.startswith("qwen3_5") and kind != "default":
        why = f"stops at {kind} in {whole}, whose factor it writes as a list"
    elif whole == "lfm2" and "layer_types" not in config.written:
        why = "reads layer_types, and no full_attn_idxs: every layer is to attend, and llama.cpp finds no weights"
    elif whole == "phi3" and config.dims(name) != config.head_dims[name]:
        why = "rotates whole heads of Phi-3, for which llama.cpp finds too few divisors"
    if why:
        return NoAnswer("refused", f"Ollama's converter {why}", BY_FILE)
    held = config.written.get("rope_parameters" if whole in INSIDE else "rope_scaling") or {}
    has_base = "rope_theta" in config.written or (whole in INSIDE and "rope_theta" in held)
    if kind not in AS_LLAMA_CPP[whole] or not has_base or (kind != "default" and not held):
        return NoAnswer("unknown", f"what Ollama makes of {kind} in {whole}, as it stands there, was not run", BY_FILE)
    return None


BY_FILE = "export it as a GGUF file (--target llama.cpp), whose Modelfile Ollama reads"


def _base(config: RopeConfig, name: str, defaults: Mapping[str, float]) -> float | None:
    """The base that Go's reader of config.json finds; a missing number is 0 there."""
    local = name == "sliding_attention"
    base = config.written.get(LOCAL_BASE if local else "rope_theta") if config.written else config.base(name)
    default = formulas.USUAL_BASE if local or config.model_type == "llama" else defaults.get(config.model_type)
    return float(base) if isinstance(base, int | float) and base else default


def by_mlx(config: RopeConfig, name: str, asked: Asked) -> Answer:
    """What the MLX runner computes: no schedule at all."""
    if config.model_type in NESTED:
        return EngineRotation(formulas.plain(config.base(name), config.dims(name)))
    base = _base(config, name, BY_MLX) if config.model_type in BY_MLX else None
    if base is None:
        return NoAnswer("unknown", f"Ollama's MLX code for {config.model_type} was not read")
    return EngineRotation(formulas.plain(base, config.head_dims[name]))


def reads(config: RopeConfig, name: str, version: Version) -> frozenset[str]:
    """The keys of a part that its converter reads."""
    if not config.written:
        return llama_cpp.reads(config, name, version)
    whole = config.part_of or config.model_type
    if whole in AS_LLAMA_CPP:
        return llama_cpp.reads(config, name, version)
    if whole in ("gemma3", "gemma3_text"):
        return LAYOUT | ({"factor", "original_max_position_embeddings"} if name == "full_attention" else set())
    keys = ("factor", "original_max_position_embeddings", "low_freq_factor", "high_freq_factor")
    scaled = whole == "llama" and isinstance(config.written.get("rope_scaling"), Mapping)
    return LAYOUT | {*(keys if scaled else ())} if "rope_theta" in config.written else frozenset()


def reads_by_mlx(config: RopeConfig, name: str, version: Version) -> frozenset[str]:
    """The base alone, where it stands."""
    seen = config.model_type in NESTED or not config.written or "rope_theta" in config.written
    return LAYOUT if seen else frozenset()


def flags(changes: Mapping[str, Any], served: int) -> str:
    """Of a Modelfile, which takes no key of a config."""
    return "" if changes else f"PARAMETER num_ctx {served}"


def _rules(
    name: str, source: str, rotation: Any, reads: Any, reads_beside: Any = reads_what_is_declared
) -> EngineRules:
    between = VersionRange((0, 33), (0, 33), f"{source} of 0.33.0 (fb30760), read; not run")
    return EngineRules(
        name,
        (between,),
        rotation,
        lambda config, version: LengthRule(math.inf, config.max_len),
        reads,
        flags,
        cautions=lambda config, name, asked: (),
        reads_beside=reads_beside,
    )


SOURCE = "convert/, llama/compat/ and, for GGUF files, llama.cpp's own rules"
RULES = _rules("ollama", SOURCE, rotation, reads, llama_cpp.reads_beside)
MLX_RULES = _rules("ollama-mlx", "x/models/", by_mlx, reads_by_mlx)
