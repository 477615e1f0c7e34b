"""Ollama, as its source reads a checkpoint (0.33.0 at fb30760: convert/ and x/models/; not run). It has two runners.

ollama       a GGUF file by llama.cpp, with its rules; a folder is converted by Ollama itself first: rope_theta beside
             the rope parameters alone; of a Llama `type: linear` and `rope_type: llama3`, of Qwen 2 `type: yarn`
             without its original length, of Gemma 3 `rope_type: yarn`. Everything else is dropped without a word
ollama-mlx   a folder by MLX: plain RoPE, at the rope_theta that stands beside the rope parameters
"""

from __future__ import annotations

import math
from collections.abc import Mapping
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
)
from ropewalk.engines.rules.standard import TABLES, llama3_table

LOCAL_BASE = "rope_local_base_freq"  # of Gemma 3's layers with a window
CONVERTED = ("llama", "qwen2", "gemma3_text")
# The base where a config.json has no rope_theta beside its rope parameters.
BY_MLX = {"llama": 10_000.0, "qwen3": 1e6, "gemma3_text": 1e6}
NESTED = ("qwen3_5_text", "qwen3_next")  # these read the base inside rope_parameters, and no schedule either


def rotation(config: RopeConfig, name: str, asked: Asked) -> Answer:
    """What llama.cpp computes from a GGUF file, or from one that Ollama makes of a folder."""
    if not config.written:
        return llama_cpp.rotation(config, name, asked)
    if config.model_type not in CONVERTED:
        return NoAnswer("unknown", f"what Ollama's converter makes of {config.model_type} was not read", BY_FILE)
    base, dims = _base(config, name, {"gemma3_text": 1e6}), config.dims(name)
    if base is None:
        return NoAnswer("unknown", f"what {config.model_type} computes without rope_theta was not run", BY_FILE)
    plain, scaling = formulas.plain(base, dims), config.written.get("rope_scaling")
    if not isinstance(scaling, Mapping) or name == "sliding_attention":
        return EngineRotation(plain)
    kinds = {"llama": {"type": "linear", "rope_type": "llama3"}, "qwen2": {"type": "yarn"}}
    known = kinds.get(config.model_type, {"rope_type": "yarn"})
    kind = next((value for key, value in known.items() if scaling.get(key) == value), None)
    if config.model_type == "qwen2" and scaling.get("type") not in (None, "", "yarn", "mrope", "default"):
        return NoAnswer("refused", f"Ollama's converter stops at {scaling['type']!r} in qwen2", BY_FILE)
    match kind:
        case "linear":
            return EngineRotation(TABLES["linear"](config, name, asked.text))
        case "llama3":
            return EngineRotation(llama3_table(config, name, asked.text))
        case "yarn":
            factor, original = config.factor(name), config.original(name)
            original = config.max_len if config.model_type == "qwen2" else original
            return EngineRotation(formulas.yarn(base, dims, factor, original), formulas.yarn_temperature(factor))
    return EngineRotation(plain)


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
    scaled = isinstance(config.written.get("rope_scaling"), Mapping) and name != "sliding_attention"
    keys = {"factor"} if scaled else set()
    if scaled and config.model_type != "qwen2":
        keys |= {"original_max_position_embeddings", "low_freq_factor", "high_freq_factor"}
    return LAYOUT | keys if "rope_theta" in config.written else frozenset()


def reads_by_mlx(config: RopeConfig, name: str, version: Version) -> frozenset[str]:
    """The base alone, where it stands."""
    seen = config.model_type in NESTED or not config.written or "rope_theta" in config.written
    return LAYOUT if seen else frozenset()


def flags(changes: Mapping[str, Any], served: int) -> str:
    """Of a Modelfile, which takes no key of a config."""
    return "" if changes else f"PARAMETER num_ctx {served}"


def _rules(name: str, source: str, rotation: Any, reads: Any) -> EngineRules:
    between = VersionRange((0, 33), (0, 33), f"{source} of 0.33.0 (fb30760), read; not run")
    return EngineRules(
        name,
        (between,),
        rotation,
        lambda config, version: LengthRule(math.inf, config.max_len),
        reads,
        flags,
        cautions=lambda config, name, asked: (),
    )


RULES = _rules("ollama", "convert/ and, for GGUF files, llama.cpp's own rules", rotation, reads)
MLX_RULES = _rules("ollama-mlx", "x/models/", by_mlx, reads_by_mlx)
