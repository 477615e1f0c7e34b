"""Rope settings as the models' makers released them, and small models that have them at a fraction of their lengths.

Copied by hand from the config.json of each model on the Hugging Face hub, as of 2025 and 2026; numbers that are lists
(Phi's divisors) are of the same kind and not the same values.
"""

import math
from typing import Any

from hf.models import tiny

LLAMA3 = {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}
DEEPSEEK = {"type": "yarn", "beta_fast": 32, "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0}
K = 1024

# name: (architecture, settings, trained length with its schedule, length before it)
CONFIGS: dict[str, tuple[str, dict[str, Any], int, int]] = {
    "Llama-3.1-8B": (
        "llama",
        {
            "rope_theta": 500_000.0,
            "max_position_embeddings": 128 * K,
            "rope_scaling": {**LLAMA3, "factor": 8.0, "original_max_position_embeddings": 8 * K},
        },
        128 * K,
        8 * K,
    ),
    "Llama-3.2-1B": (
        "llama",
        {
            "rope_theta": 500_000.0,
            "max_position_embeddings": 128 * K,
            "rope_scaling": {**LLAMA3, "factor": 32.0, "original_max_position_embeddings": 8 * K},
        },
        128 * K,
        8 * K,
    ),
    "gemma-3-4b": (
        "gemma3_text",
        {
            "rope_theta": 1_000_000.0,
            "rope_local_base_freq": 10_000.0,
            "max_position_embeddings": 128 * K,
            "rope_scaling": {"rope_type": "linear", "factor": 8.0},
        },
        128 * K,
        16 * K,
    ),
    "gemma-4": (
        "gemma4_text",
        {
            "max_position_embeddings": 128 * K,
            "rope_parameters": {
                "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
                "full_attention": {
                    "rope_type": "proportional",
                    "partial_rotary_factor": 0.25,
                    "rope_theta": 1_000_000.0,
                },
            },
        },
        128 * K,
        128 * K,
    ),
    "Qwen2.5-7B-Instruct with YaRN": (
        "qwen2",
        {
            "rope_theta": 1_000_000.0,
            "max_position_embeddings": 32 * K,
            "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32 * K},
        },
        128 * K,
        32 * K,
    ),
    "Qwen3-8B with YaRN": (
        "qwen3",
        {
            "rope_theta": 1_000_000,
            "max_position_embeddings": 40 * K,
            "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32 * K},
        },
        128 * K,
        32 * K,
    ),
    "Phi-3-mini-128k": (
        "phi3",
        {
            "rope_theta": 10_000.0,
            "max_position_embeddings": 128 * K,
            "original_max_position_embeddings": 4 * K,
            "rope_scaling": {"type": "longrope", "short_factor": [1.05] * 48, "long_factor": [1.25] * 48},
            "hidden_size": 3072,
            "num_attention_heads": 32,
        },
        128 * K,
        4 * K,
    ),
    "Phi-4-mini": (
        "phi3",
        {
            "rope_theta": 10_000.0,
            "max_position_embeddings": 128 * K,
            "original_max_position_embeddings": 4 * K,
            "partial_rotary_factor": 0.75,
            "rope_scaling": {"type": "longrope", "short_factor": [1.0] * 48, "long_factor": [1.25] * 48},
            "hidden_size": 3072,
            "num_attention_heads": 24,
        },
        128 * K,
        4 * K,
    ),
    "DeepSeek-V3": (
        "deepseek_v3",
        {
            "rope_theta": 10_000,
            "max_position_embeddings": 160 * K,
            "rope_scaling": {**DEEPSEEK, "factor": 40, "original_max_position_embeddings": 4 * K},
        },
        128 * K,
        4 * K,
    ),
    "Kimi-K2-Instruct": (
        "deepseek_v3",
        {
            "rope_theta": 50_000.0,
            "max_position_embeddings": 128 * K,
            "rope_scaling": {**DEEPSEEK, "factor": 32.0, "original_max_position_embeddings": 4 * K},
        },
        128 * K,
        4 * K,
    ),
    "gpt-oss-20b": (
        "gpt_oss",
        {
            "rope_theta": 150_000,
            "max_position_embeddings": 128 * K,
            "rope_scaling": {
                "rope_type": "yarn",
                "factor": 32.0,
                "original_max_position_embeddings": 4 * K,
                "beta_fast": 32.0,
                "beta_slow": 1.0,
                "truncate": False,
            },
        },
        128 * K,
        4 * K,
    ),
    "Ministral-3-8B": (
        "ministral3",
        {
            "max_position_embeddings": 256 * K,
            "rope_parameters": {
                "type": "yarn",
                "rope_type": "yarn",
                "rope_theta": 1_000_000.0,
                "factor": 16.0,
                "original_max_position_embeddings": 16 * K,
                "beta_fast": 32.0,
                "beta_slow": 1.0,
                "mscale": 1.0,
                "mscale_all_dim": 1.0,
                "llama_4_scaling_beta": 0.1,
            },
        },
        256 * K,
        16 * K,
    ),
    "Llama-4-Scout": (
        "llama4_text",
        {
            "rope_theta": 500_000.0,
            "max_position_embeddings": 10_240 * K,
            "rope_scaling": {
                "rope_type": "llama3",
                "factor": 16.0,
                "high_freq_factor": 1.0,
                "low_freq_factor": 1.0,
                "original_max_position_embeddings": 8 * K,
            },
        },
        256 * K,
        8 * K,
    ),
    "GLM-4-9B-0414": (
        "glm4",
        {"max_position_embeddings": 32 * K, "rope_theta": 10_000.0, "partial_rotary_factor": 0.5},
        32 * K,
        32 * K,
    ),
    "internlm2.5-like, dynamic": (
        "llama",
        {
            "rope_theta": 1_000_000,
            "max_position_embeddings": 32 * K,
            "rope_scaling": {"type": "dynamic", "factor": 2.0},
        },
        32 * K,
        32 * K,
    ),
    "deepseek-coder-6.7b": (
        "llama",
        {"rope_theta": 100_000, "max_position_embeddings": 16 * K, "rope_scaling": {"type": "linear", "factor": 4.0}},
        16 * K,
        4 * K,
    ),
}

LENGTHS = ("max_position_embeddings", "original_max_position_embeddings")
SHAPES: dict[str, dict[str, Any]] = {
    "gemma3_text": {"num_hidden_layers": 3, "layer_types": ["sliding_attention"] * 2 + ["full_attention"]},
    "gemma4_text": {
        "num_hidden_layers": 3,
        "layer_types": ["sliding_attention"] * 2 + ["full_attention"],
        "sliding_window": 12,
        "global_head_dim": 32,
        "num_kv_shared_layers": 0,
        "hidden_size_per_layer_input": 0,
    },
}


def small(name: str, shortened: int = 128, **changed: Any) -> Any:
    """A model of few layers whose settings are those released, with all lengths divided."""
    kind, settings, *_ = CONFIGS[name]
    settings = {key: value for key, value in settings.items() if key not in ("hidden_size", "num_attention_heads")}
    shorter = _shortened(settings, shortened)
    pairs = 8 if settings.get("partial_rotary_factor", 1.0) == 1.0 else 6
    for part in (shorter.get("rope_scaling") or {},):
        for key, least in (("short_factor", 0.05), ("long_factor", 1.0)):
            if key in part:
                grows = 0.0 if name == "Phi-4-mini" and key == "short_factor" else least
                part[key] = [1.0 + grows * pair for pair in range(pairs)]
    return tiny(kind, **{"num_hidden_layers": 2, **SHAPES.get(kind, {}), **shorter, **changed})


def _shortened(settings: dict[str, Any], by: int) -> dict[str, Any]:
    return {
        key: _shortened(value, by)
        if isinstance(value, dict)
        else math.ceil(value / by)
        if key in LENGTHS
        else list(value)
        if isinstance(value, list)
        else value
        for key, value in settings.items()
    }
