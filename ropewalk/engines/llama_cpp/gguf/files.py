"""The files that llama.cpp and Ollama load, where the architecture was run; else what its own converter needs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from ropewalk.engines.llama_cpp.export import FILE
from ropewalk.engines.llama_cpp.gguf.architectures import ARCHITECTURES
from ropewalk.engines.llama_cpp.gguf.pre_tokenizers import converter_line
from ropewalk.engines.rules.statement import StatedModel
from ropewalk.errors import not_installed
from ropewalk.folders import write_text
from ropewalk.hf.runtime.layer import PREFIX

MODELFILE = "Modelfile"


def require_writer(stated: StatedModel) -> None:
    """Refuse early if a GGUF is to be written and the package is missing."""
    if stated.text.model_type not in ARCHITECTURES:
        return
    try:
        import gguf  # noqa: F401
    except ModuleNotFoundError as missing:
        raise not_installed(missing) from missing


def write_for_llama_cpp(
    stated: StatedModel, weights: Mapping[str, Tensor], tokenizer: Any | None, place: Path
) -> list[str]:
    """Write the GGUF and the Modelfile into the folder, or name the converter; returns notes."""
    kind = stated.text.model_type
    if kind not in ARCHITECTURES:
        return [
            f"no GGUF was written, since {kind} was never run as one of ours; convert the folder with llama.cpp's "
            "convert_hf_to_gguf.py",
            *converter_line(tokenizer),
        ]
    from ropewalk.engines.llama_cpp.gguf.write_gguf import write_gguf

    plain = {name: value for name, value in weights.items() if PREFIX not in name}
    notes = write_gguf(stated, plain, tokenizer, place / FILE)
    write_text(place / MODELFILE, f"FROM ./{FILE}\nPARAMETER num_ctx {stated.length}\n")
    return [*notes, f"for Ollama, in the folder: ollama create NAME -f {MODELFILE}"]
