"""Small models of the releases that docs/families names, with the lengths and rope parameters of their configs.

Most are recorded in `hf.released`; the others are copied by hand from the config.json of each model.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

from transformers import AutoTokenizer

from ropewalk.models import DEFAULT

from hf import released
from hf.models import tiny

K = 1024
WORDS = 2048  # of the tokenizer that comes with Ropewalk
BASE = 1_000_000.0
RECORDED = {  # names on the hub, and in hf.released
    "meta-llama/Llama-3.1-8B-Instruct": "Llama-3.1-8B",
    "mistralai/Ministral-3-8B-Instruct-2512": "Ministral-3-8B",
    "deepseek-ai/DeepSeek-V3": "DeepSeek-V3",
    "microsoft/Phi-3-mini-128k-instruct": "Phi-3-mini-128k",
    "microsoft/Phi-4-mini-instruct": "Phi-4-mini",
    "zai-org/GLM-4-9B-0414": "GLM-4-9B-0414",
    "openai/gpt-oss-20b": "gpt-oss-20b",
}


class Release(NamedTuple):
    """The architecture of a checkpoint, and what its config says of positions."""

    kind: str
    settings: dict[str, Any]


GEMMA_3_1B = {
    "rope_theta": BASE,
    "rope_local_base_freq": 10_000.0,
    "rope_scaling": None,
    "max_position_embeddings": 32 * K,
    "sliding_window": 512,
    "query_pre_attn_scalar": 16,  # the size of a head, as in the release
    "num_hidden_layers": 6,
    "layer_types": ["sliding_attention"] * 5 + ["full_attention"],
}
AXES = {"mrope_section": [2, 1, 1], "mrope_interleaved": True}
PLAIN = {
    "Qwen/Qwen2.5-7B-Instruct": Release("qwen2", {"rope_theta": BASE, "max_position_embeddings": 32 * K}),
    "Qwen/Qwen3-8B": Release("qwen3", {"rope_theta": BASE, "max_position_embeddings": 40 * K}),
    # Their language models; the sections are those of a smaller head.
    "Qwen/Qwen3.5-27B": Release(
        "qwen3_5_text",
        {
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25, **AXES},
            **{"max_position_embeddings": 256 * K, "num_hidden_layers": 4, "head_dim": 32},
        },
    ),
    "Qwen/Qwen3-Next-80B-A3B-Instruct": Release(
        "qwen3_next",
        {
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25},
            **{"max_position_embeddings": 256 * K, "num_hidden_layers": 4, "head_dim": 32},
        },
    ),
    "google/gemma-3-1b-it": Release("gemma3_text", GEMMA_3_1B),
    "mistralai/Mistral-7B-Instruct-v0.3": Release(
        "mistral", {"rope_theta": BASE, "max_position_embeddings": 32 * K, "sliding_window": None}
    ),
}
NAMES = (*RECORDED, *PLAIN)


def save_small(name: str, folder: Path, shortened: int = 1) -> None:
    """Save a small model of this release in a folder of its name, all lengths divided by `shortened`."""
    if name in RECORDED:
        model = released.small(RECORDED[name], shortened, vocab_size=WORDS)
    else:
        kind, settings = PLAIN[name]
        length = math.ceil(settings["max_position_embeddings"] / shortened)
        sizes = {"num_hidden_layers": 2, "vocab_size": WORDS}
        model = tiny(kind, **{**sizes, **settings, "max_position_embeddings": length})
    model.save_pretrained(folder / name)
    AutoTokenizer.from_pretrained(DEFAULT).save_pretrained(folder / name)
