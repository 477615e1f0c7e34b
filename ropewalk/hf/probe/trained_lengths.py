"""What released models were trained on, where `max_position_embeddings` of their config.json is another number.

A config states how long a text an engine may take: with room for an answer, by a schedule that is left to the user, or
by an attention that few engines have. The factor of a schedule is worked out from the length that was trained.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

DUAL_CHUNK = "dual_chunk_attention_config"  # positions beyond its chunks are met by an attention of its own, untrained
ORIGINAL = "original_max_position_embeddings"


class Released(NamedTuple):
    """A family of released models, by what their configs have in common."""

    model_types: tuple[str, ...]
    stated: Mapping[str, Any]  # keys of the config; `rope_type` and `rope_theta` are those of its rope parameters
    tokens: int
    source: str


RELEASED = (
    Released(
        ("qwen3", "qwen3_moe", "qwen2"),
        {"max_position_embeddings": 40_960, "rope_type": "default", "rope_theta": 1_000_000},
        32_768,
        "the model cards of Qwen3 and QwQ: 32,768 natively; 40,960 leaves room for an answer",
    ),
    Released(
        ("qwen2",),
        {"max_position_embeddings": 131_072, "rope_type": "default", "rope_theta": 1_000_000},
        32_768,
        "the report of Qwen2.5 (arXiv 2412.15115): 32,768; 131,072 is for YaRN and dual chunk attention",
    ),
    Released(
        ("mistral",),
        {"max_position_embeddings": 32_768, "sliding_window": 4096, "rope_type": "default", "rope_theta": 10_000},
        8192,
        "the paper of Mistral 7B (arXiv 2310.06825, table 1)",
    ),
    Released(
        ("lfm2", "lfm2_moe"),
        {"max_position_embeddings": 128_000, "rope_type": "default"},
        32_768,
        "the model cards of LFM2",
    ),
    Released(
        ("deepseek_v3",),
        {"max_position_embeddings": 163_840, "rope_type": "yarn", "factor": 40},
        131_072,
        "the report of DeepSeek-V3 (arXiv 2412.19437): extended to 128K; its factor would do for 160K",
    ),
    Released(
        ("llama4_text",),
        {"max_position_embeddings": 10_485_760, "rope_type": "llama3"},
        262_144,
        "Meta's announcement of Llama 4: Scout was trained with 256K",
    ),
)
