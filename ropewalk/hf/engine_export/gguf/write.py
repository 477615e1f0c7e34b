"""Write a GGUF file, and the Modelfile that Ollama reads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf

from ropewalk.folders import write_text
from ropewalk.hf.engine_export.engines.signature import StatedModel
from ropewalk.hf.engine_export.gguf.architectures import ARCHITECTURES
from ropewalk.hf.engine_export.gguf.metadata import add_metadata
from ropewalk.hf.engine_export.gguf.tensors import add_tensor, tensors
from ropewalk.hf.engine_export.gguf.vocabulary import add_vocabulary

FILE, MODELFILE = "model.gguf", "Modelfile"


def write_gguf(stated: StatedModel, weights: Mapping[str, Tensor], tokenizer: Any | None, place: Path) -> list[str]:
    """Write the model with its schedule into a folder, beside a Modelfile; returns notes on the tokenizer."""
    architecture = ARCHITECTURES[stated.text.model_type]
    dtype = stated.config.dtype
    writer = gguf.GGUFWriter(place / FILE, gguf.MODEL_ARCH_NAMES[gguf.MODEL_ARCH[architecture.name]])
    add_metadata(writer, architecture, stated, dtype)
    notes = add_vocabulary(writer, tokenizer, stated.text.vocab_size)
    for name, value in tensors(architecture, stated.text, weights):
        add_tensor(writer, name, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    write_text(place / MODELFILE, f"FROM ./{FILE}\nPARAMETER num_ctx {stated.length}\n")
    return notes
