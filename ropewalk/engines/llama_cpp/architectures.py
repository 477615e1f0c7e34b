"""Architectures and tokenizers that we write as GGUF files."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Any, NamedTuple

from ropewalk.errors import DoesNotFit
from ropewalk.files import read_json

# The architectures that were run as GGUF files in llama.cpp: how each lies there, and what llama.cpp fixes for it.
#
# llama.cpp builds a model from the architecture's name and its metadata. What it does not read from the metadata is a
# constant of its own there; a config that says otherwise is refused.


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


# The rules by which byte-level tokenizers split texts, under the names that llama.cpp has for them.
#
# Its converter recognizes a tokenizer by the hash of the tokens of one text, so a new vocabulary is unknown even under
# common rules; it then stops with "BPE pre-tokenizer was not recognized". Here the rules themselves are compared.


# The text of get_vocab_base_pre in llama.cpp's conversion/base.py (2026-08).
TEXT = (
    "\n \n\n \n\n\n \t \t\t \t\n  \n   \n    \n     \n🚀 (normal) 😶\u200d🌫️ (multiple emojis concatenated) ✅ 🦙🦙 "
    "3 33 333 3333 33333 333333 3333333 33333333 3.3 3..3 3...3 កាន់តែពិសេសអាច😁 ?我想在apple工作1314151天～ "
    "------======= нещо на Български "
    "''''''```````\"\"\"\"......!!!!!!?????? I've been 'told he's there, 'RE you sure? 'M not sure I'll make it, "
    "'D you like some tea? We'Ve a'lL"
)
BYTES = {"type": "ByteLevel", "use_regex": False, "add_prefix_space": False}
GPT2 = {"type": "ByteLevel", "use_regex": True, "add_prefix_space": False}
DIGITS = {"type": "Digits", "individual_digits": True}
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|"
    r"\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _split_rule(digits: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": WORDS % digits}, "behavior": "Isolated", "invert": False}


class Rules(NamedTuple):
    """Rules of a tokenizer, and llama.cpp's name for them."""

    name: str
    parts: tuple[dict[str, Any], ...]
    ignores_merges: bool = False  # whether a word that is a token is taken whole


RULES = (
    Rules("smollm", (DIGITS, GPT2)),
    Rules("gpt-2", (GPT2,)),
    Rules("qwen2", (_split_rule(""), BYTES)),
    Rules("llama-bpe", (_split_rule("{1,3}"), BYTES), ignores_merges=True),
    Rules("dbrx", (_split_rule("{1,3}"), BYTES)),
)


def name_of(tokenizer: Any | None) -> str | None:
    """What llama.cpp calls the rules of this tokenizer; None where it has no name for them."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return None
    stated = read_json(backend.to_str(), "tokenizer")
    model, rules = stated["model"], stated["pre_tokenizer"] or {}
    if model["type"] != "BPE" or model.get("byte_fallback") or model.get("dropout"):
        return None
    if (stated.get("normalizer") or {"type": "NFC"})["type"] != "NFC":  # composed texts are the usual ones
        return None
    parts, whole = rules.get("pretokenizers", [rules]), bool(model.get("ignore_merges"))
    return next((rule.name for rule in RULES if rule.ignores_merges == whole and _alike(parts, rule.parts)), None)


def converter_line(tokenizer: Any | None) -> list[str]:
    """The line that llama.cpp's converter needs for this tokenizer, where the rules have a name; else nothing."""
    name = name_of(tokenizer)
    if name is None:
        return []
    digest = sha256(str(tokenizer.encode(TEXT)).encode()).hexdigest()  # type: ignore[union-attr]
    line = f'if chkhsh == "{digest}": res = "{name}"'
    return [f"if convert_hf_to_gguf.py does not recognize the pre-tokenizer, add to its get_vocab_base_pre: {line}"]


def _alike(parts: list[dict[str, Any]], rules: tuple[dict[str, Any], ...]) -> bool:
    return len(parts) == len(rules) and all(
        part.get(key) == value for part, rule in zip(parts, rules, strict=True) for key, value in rule.items()
    )
