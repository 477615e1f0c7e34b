"""Write a GGUF file, from the config that the engine's rule has rewritten."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
from torch import Tensor

from ropewalk.engines.llama_cpp.export import TENSOR
from ropewalk.engines.llama_cpp.gguf.architectures import ARCHITECTURES
from ropewalk.engines.llama_cpp.gguf.metadata import add_metadata, periods
from ropewalk.engines.llama_cpp.gguf.tensors import add_tensor, tensors
from ropewalk.engines.llama_cpp.gguf.vocabulary import add_vocabulary
from ropewalk.engines.rules.statement import StatedModel


def write_gguf(stated: StatedModel, weights: Mapping[str, Tensor], tokenizer: Any | None, path: Path) -> list[str]:
    """Write the model with its schedule and its vocabulary; returns notes on the vocabulary."""
    architecture = ARCHITECTURES[stated.text.model_type]
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[gguf.MODEL_ARCH[architecture.name]])
    add_metadata(writer, architecture, stated)
    notes = add_vocabulary(writer, tokenizer, stated.text.vocab_size)
    table = {TENSOR: periods(stated)} if TENSOR in weights else {}
    for name, value in tensors(architecture, stated.text, {**weights, **table}):
        add_tensor(writer, name, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return notes
