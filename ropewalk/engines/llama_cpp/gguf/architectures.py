"""The architectures that were run as GGUF files in llama.cpp: how each lies there, and what llama.cpp fixes for it.

llama.cpp builds a model from the architecture's name and its metadata. What it does not read from the metadata is a
constant of its own there; a config that says otherwise is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ropewalk.errors import DoesNotFit

GEMMA_PERIOD = 6  # every sixth layer of Gemma 3 attends to all tokens
STILL_PERIOD = 4  # every fourth layer of SmolLM3 does not rotate


def _nothing(writer: Any, text: Any) -> None:
    """No metadata beside what all have."""


class Architecture(NamedTuple):
    """How the weights and the config of one type of model lie in a GGUF file."""

    name: str  # of gguf.MODEL_ARCH
    interleaved: bool = False  # whether the rows of q and k are reordered, so that neighbours make a pair
    norms_add_one: bool = False  # whether its norms multiply by their weight plus one
    metadata: Callable[[Any, Any], None] = _nothing  # gets the writer and the text part of the config


def _gemma3(writer: Any, text: Any) -> None:
    """Its scale, its pattern of layers and its soft cap are llama.cpp's own."""
    _require("query_pre_attn_scalar", text.query_pre_attn_scalar, text.head_dim)
    _require("final_logit_softcapping", text.final_logit_softcapping, None)
    full = [kind == "full_attention" for kind in text.layer_types]
    _require("layer_types", full, [(i + 1) % GEMMA_PERIOD == 0 for i in range(len(full))])
    writer.add_sliding_window(text.sliding_window)
    writer.add_rope_freq_base_swa(text.rope_parameters["sliding_attention"]["rope_theta"])


def _granite(writer: Any, text: Any) -> None:
    """Its four factors."""
    writer.add_attention_scale(text.attention_multiplier)
    writer.add_embedding_scale(text.embedding_multiplier)
    writer.add_residual_scale(text.residual_multiplier)
    writer.add_logit_scale(text.logits_scaling)


def _smollm3(writer: Any, text: Any) -> None:
    """Which layers do not rotate is llama.cpp's own."""
    wanted = [int((i + 1) % STILL_PERIOD != 0) for i in range(text.num_hidden_layers)]
    _require("no_rope_layers", list(text.no_rope_layers), wanted)


def _require(field: str, value: Any, fixed: Any) -> None:
    """Refuse a config that differs from llama.cpp's constant."""
    if value != fixed:
        raise DoesNotFit(field, f"{fixed!r}, which llama.cpp fixes for this architecture", value)


ARCHITECTURES = {
    "llama": Architecture("LLAMA", interleaved=True),
    "mistral": Architecture("LLAMA", interleaved=True),
    "qwen2": Architecture("QWEN2"),
    "qwen3": Architecture("QWEN3"),
    "gemma3_text": Architecture("GEMMA3", norms_add_one=True, metadata=_gemma3),
    "olmo2": Architecture("OLMO2"),
    "granite": Architecture("GRANITE", interleaved=True, metadata=_granite),
    "smollm3": Architecture("SMOLLM3", interleaved=True, metadata=_smollm3),
    "arcee": Architecture("ARCEE", interleaved=True),
    "exaone4": Architecture("EXAONE4"),
    "seed_oss": Architecture("SEED_OSS"),
}
