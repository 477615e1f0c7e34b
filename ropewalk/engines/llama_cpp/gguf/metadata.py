"""The metadata of a GGUF file: sizes, and the schedule as llama.cpp reads it."""

from __future__ import annotations

from typing import Any

import gguf
import torch
from torch import Tensor

from ropewalk.engines.llama_cpp.gguf.architectures import Architecture
from ropewalk.engines.rules.statement import StatedModel
from ropewalk.hf.checkpoint.config_schedule import STOPPING_DIVISOR

FILE_TYPES = {
    torch.float32: gguf.LlamaFileType.ALL_F32,
    torch.float16: gguf.LlamaFileType.MOSTLY_F16,
    torch.bfloat16: gguf.LlamaFileType.MOSTLY_BF16,
}
SCALINGS = {"linear": gguf.RopeScalingType.LINEAR, "yarn": gguf.RopeScalingType.YARN}


def add_metadata(writer: Any, architecture: Architecture, stated: StatedModel) -> None:
    """All that llama.cpp reads, apart from the vocabulary."""
    text = stated.text
    head_dim = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    writer.add_type(gguf.GGUFType.MODEL)
    writer.add_file_type(FILE_TYPES[stated.config.dtype])
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_vocab_size(text.vocab_size)
    writer.add_context_length(stated.length)
    writer.add_embedding_length(text.hidden_size)
    writer.add_block_count(text.num_hidden_layers)
    writer.add_feed_forward_length(text.intermediate_size)
    writer.add_head_count(text.num_attention_heads)
    writer.add_head_count_kv(text.num_key_value_heads)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_layer_norm_rms_eps(text.rms_norm_eps)
    _add_schedule(writer, stated.parameters[0], 2 * len(stated.table))
    architecture.metadata(writer, text)


def periods(stated: StatedModel) -> Tensor:
    """The divisor of every pair over the base 1: positions per radian.

    Over any other base llama.cpp multiplies the angle pair after pair in float32, and each product is rounded: after
    4,096 tokens log-probabilities of the carried model are off by three times as much (studies/log.md).
    """
    return (1 / stated.table).clamp(max=STOPPING_DIVISOR).float()


def _add_schedule(writer: Any, parameters: dict[str, Any], rotated: int) -> None:
    """Base and scaling; a schedule in divisors has neither a name nor a factor, and the base 1."""
    named = parameters["rope_type"] in ("default", *SCALINGS)
    writer.add_rope_dimension_count(rotated)
    writer.add_rope_freq_base(float(parameters["rope_theta"]) if named else 1.0)
    scaling = SCALINGS.get(parameters["rope_type"])
    if scaling is None:
        return
    writer.add_rope_scaling_type(scaling)
    writer.add_rope_scaling_factor(float(parameters["factor"]))
    if scaling == gguf.RopeScalingType.YARN:
        writer.add_rope_scaling_orig_ctx_len(int(parameters["original_max_position_embeddings"]))
