"""The weights of a model as tensors of a GGUF file: names, the order of rows, and precision."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import gguf
import torch
from torch import Tensor

from ropewalk.engines.llama_cpp.gguf.architectures import Architecture
from ropewalk.errors import DoesNotFit

TYPES = {
    torch.float32: gguf.GGMLQuantizationType.F32,
    torch.float16: gguf.GGMLQuantizationType.F16,
    torch.bfloat16: gguf.GGMLQuantizationType.BF16,
}
SUFFIXES = (".weight", ".bias")


def tensors(architecture: Architecture, text: Any, weights: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Every tensor by its name in the file. Vectors and norms are float32, as llama.cpp wants them."""
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[architecture.name], text.num_hidden_layers)
    for key, weight in weights.items():
        if key == "lm_head.weight" and text.tie_word_embeddings:
            continue  # llama.cpp takes the embedding
        name = names.get_name(key, SUFFIXES)
        if name is None:
            raise DoesNotFit("weights", f"those that GGUF names for {architecture.name.lower()}", key)
        value = weight.detach().cpu()
        if architecture.norms_add_one and key.endswith("norm.weight"):
            value = value.float() + 1
        if architecture.interleaved and ".self_attn." in key:
            value = _interleave(key, value, text)
        yield name, value.float() if value.dim() == 1 or name.endswith("_norm.weight") else value


def add_tensor(writer: Any, name: str, value: Tensor) -> None:
    """One tensor in its own precision; numpy knows no bfloat16, so that goes in as bytes."""
    kind, value = TYPES[value.dtype], value.contiguous()
    data = (value.view(torch.uint8) if value.dtype == torch.bfloat16 else value).numpy()
    writer.add_tensor(name, data, raw_dtype=kind)


def _interleave(key: str, value: Tensor, text: Any) -> Tensor:
    """The rows of q and k in the order in which neighbours make a pair; everything else unchanged."""
    heads = {"q_proj": text.num_attention_heads, "k_proj": text.num_key_value_heads}
    count = next((count for name, count in heads.items() if f".{name}." in key), None)
    if count is None:
        return value
    rows = value.reshape(count, 2, len(value) // count // 2, *value.shape[1:])
    return rows.transpose(1, 2).reshape(value.shape)
