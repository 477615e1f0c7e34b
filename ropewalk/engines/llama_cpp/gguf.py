"""GGUF files, as llama.cpp reads them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ropewalk.engines.llama_cpp.architectures import ARCHITECTURES, Architecture, converter_line, name_of
from ropewalk.engines.llama_cpp.rules import FILE, TENSOR
from ropewalk.engines.rules.statement import StatedModel
from ropewalk.errors import DoesNotFit, not_installed
from ropewalk.files import read_json
from ropewalk.folders import write_text
from ropewalk.hf.checkpoint.config_schedule import STOPPING_DIVISOR
from ropewalk.hf.checkpoint.tokens import tokens_around
from ropewalk.hf.runtime.layer import PREFIX

try:
    import gguf
except ModuleNotFoundError:  # an extra, which only those need who write a file
    gguf = None  # type: ignore[assignment]

# The metadata of a GGUF file: sizes, and the schedule as llama.cpp reads it.


FILE_TYPES = {torch.float32: "ALL_F32", torch.float16: "MOSTLY_F16", torch.bfloat16: "MOSTLY_BF16"}
SCALINGS = ("linear", "yarn")  # llama.cpp's names, and transformers'


def add_metadata(writer: Any, architecture: Architecture, stated: StatedModel) -> None:
    """All that llama.cpp reads, apart from the vocabulary."""
    text = stated.text
    head_dim = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    writer.add_type(gguf.GGUFType.MODEL)
    writer.add_file_type(gguf.LlamaFileType[FILE_TYPES[stated.config.dtype]])
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_vocab_size(text.vocab_size)
    writer.add_embedding_length(text.hidden_size)
    writer.add_block_count(text.num_hidden_layers)
    writer.add_feed_forward_length(text.intermediate_size)
    writer.add_head_count(text.num_attention_heads)
    writer.add_head_count_kv(text.num_key_value_heads)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_layer_norm_rms_eps(text.rms_norm_eps)
    writer.add_rope_dimension_count(2 * len(stated.table))
    add = {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
    for name, value in schedule_values(stated).items():
        add[type(value)](f"{writer.arch}.{name}", value)
    architecture.metadata(writer, text)


def periods(stated: StatedModel) -> Tensor:
    """The divisor of every pair over the base 1: positions per radian.

    Over any other base llama.cpp multiplies the angle pair after pair in float32, and each product is rounded: after
    4,096 tokens log-probabilities of the carried model are off by three times as much (studies/log.md).
    """
    return (1 / stated.table).clamp(max=STOPPING_DIVISOR).float()


def schedule_values(stated: StatedModel, folded: float = 1.0) -> dict[str, int | float | str]:
    """The length, the base and the scaling, by their names within the architecture.

    A schedule in divisors has neither a name nor a factor, and the base 1. A temperature that is to be folded into the
    queries can be a factor of cos and sin, beside that of the schedule.
    """
    parameters = stated.parameters[0]
    kind, base = parameters["rope_type"], float(parameters["rope_theta"])
    values: dict[str, int | float | str] = {"context_length": int(stated.length)}
    values["rope.freq_base"] = base if kind in ("default", *SCALINGS) else 1.0
    if kind in SCALINGS:
        values |= {"rope.scaling.type": kind, "rope.scaling.factor": float(parameters["factor"])}
    if kind == "yarn":
        values["rope.scaling.original_context_length"] = int(parameters["original_max_position_embeddings"])
    return values | ({"rope.scaling.attn_factor": math.sqrt(folded)} if folded != 1 else {})


# The weights of a model as tensors of a GGUF file: names, the order of rows, and precision.


TYPES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}
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
    kind, value = gguf.GGMLQuantizationType[TYPES[value.dtype]], value.contiguous()
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


# A tokenizer as the vocabulary of a GGUF file: byte-level BPE under the rules that llama.cpp has a name for.
#
# A tokenizer of another kind, or with other rules, is not written: a wrong name would split texts differently, without
# an error. The file then has no vocabulary, and prompts are token ids.


def add_vocabulary(writer: Any, tokenizer: Any | None, rows: int) -> list[str]:
    """Write the tokenizer, padded to the rows of the embedding; returns what there is to say of it."""
    name = name_of(tokenizer)
    if name is None:
        writer.add_tokenizer_model("no_vocab")
        why = "no tokenizer was passed" if tokenizer is None else "llama.cpp has no name for this tokenizer's rules"
        return [f"{why}: the GGUF has no vocabulary, and prompts must be token ids"]
    stated = read_json(tokenizer.backend_tokenizer.to_str(), "tokenizer")  # type: ignore[union-attr]
    words, kinds = _tokens(stated, rows)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(name)
    writer.add_token_list(words)
    writer.add_token_types(kinds)
    writer.add_token_merges([pair if isinstance(pair, str) else " ".join(pair) for pair in stated["model"]["merges"]])
    _add_special(writer, tokenizer)
    normal = "; llama.cpp does not normalize texts to NFC" if stated.get("normalizer") else ""
    return [f"the GGUF has the tokenizer, under the rules that llama.cpp calls {name}{normal}"]


def _tokens(stated: dict[str, Any], rows: int) -> tuple[list[str], list[int]]:
    """Every token by its id with its type; ids that no token has are unused."""
    ids = {index: (word, gguf.TokenType.NORMAL) for word, index in stated["model"]["vocab"].items()}
    for token in stated["added_tokens"]:
        kind = gguf.TokenType.CONTROL if token["special"] else gguf.TokenType.USER_DEFINED
        ids[token["id"]] = (token["content"], kind)
    if not stated["model"]["vocab"]:
        raise DoesNotFit("tokenizer", "one with words", "none", remedy="put the model's own tokenizer into its folder")
    if max(ids) >= rows:
        raise DoesNotFit("tokenizer", f"one with ids below {rows}, the rows of the embedding", max(ids))
    listed = [ids.get(index, (f"[PAD{index}]", gguf.TokenType.UNUSED)) for index in range(rows)]
    return [word for word, _ in listed], [int(kind) for _, kind in listed]


def _add_special(writer: Any, tokenizer: Any) -> None:
    """Beginning, end and padding, whether texts begin or end with them, and the template of chats."""
    for name in ("bos", "eos", "pad"):
        index = getattr(tokenizer, f"{name}_token_id")
        if index is not None:
            getattr(writer, f"add_{name}_token_id")(index)
    begin, end = tokens_around(tokenizer)
    writer.add_add_bos_token(tokenizer.bos_token_id is not None and tokenizer.bos_token_id in begin[:1])
    writer.add_add_eos_token(tokenizer.eos_token_id is not None and tokenizer.eos_token_id in end[-1:])
    if tokenizer.chat_template:
        writer.add_chat_template(tokenizer.chat_template)


# Write a GGUF file, from the config that the engine's rule has rewritten.


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


# The files that llama.cpp and Ollama load, where the architecture was run; else what its own converter needs.


MODELFILE = "Modelfile"


def require_writer(stated: StatedModel) -> None:
    """Refuse early if a GGUF is to be written and the package is missing."""
    if stated.text.model_type in ARCHITECTURES:
        require_package()


def require_package() -> None:
    """Refuse where the package that knows GGUF files is missing."""
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

    plain = {name: value for name, value in weights.items() if PREFIX not in name}
    notes = write_gguf(stated, plain, tokenizer, place / FILE)
    for pattern in ("*.safetensors", "*.safetensors.index.json"):  # which the folder was compared by, and has again
        for weights_again in place.glob(pattern):
            weights_again.unlink()
    write_text(place / MODELFILE, f"FROM ./{FILE}\nPARAMETER num_ctx {stated.length}\n")
    smaller = f"llama-quantize {FILE} model-Q4_K_M.gguf Q4_K_M"
    return [
        *notes,
        f"the weights are in {FILE} alone; a smaller file, in the folder: {smaller}",
        f"for Ollama, in the folder: ollama create NAME -f {MODELFILE}",
    ]
