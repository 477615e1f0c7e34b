"""A tokenizer as the vocabulary of a GGUF file: byte-level BPE under the rules that llama.cpp has a name for.

A tokenizer of another kind, or with other rules, is not written: a wrong name would split texts differently, without
an error. The file then has no vocabulary, and prompts are token ids.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import gguf

from ropewalk.errors import DoesNotFit
from ropewalk.files import read_json

BYTES = {"type": "ByteLevel", "use_regex": False, "add_prefix_space": False}
GPT2 = {"type": "ByteLevel", "use_regex": True, "add_prefix_space": False}
DIGITS = {"type": "Digits", "individual_digits": True}
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|"
    r"\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _split(digits: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": WORDS % digits}, "behavior": "Isolated", "invert": False}


class Rules(NamedTuple):
    """Rules of a tokenizer, and llama.cpp's name for them."""

    name: str
    parts: tuple[dict[str, Any], ...]
    ignores_merges: bool = False  # whether a word that is a token is taken whole


RULES = (
    Rules("smollm", (DIGITS, GPT2)),
    Rules("gpt-2", (GPT2,)),
    Rules("qwen2", (_split(""), BYTES)),
    Rules("llama-bpe", (_split("{1,3}"), BYTES), ignores_merges=True),
    Rules("dbrx", (_split("{1,3}"), BYTES)),
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
    ids = tokenizer.encode("a")
    writer.add_add_bos_token(tokenizer.bos_token_id is not None and ids[0] == tokenizer.bos_token_id)
    writer.add_add_eos_token(tokenizer.eos_token_id is not None and ids[-1] == tokenizer.eos_token_id)
    if tokenizer.chat_template:
        writer.add_chat_template(tokenizer.chat_template)


def _alike(parts: list[dict[str, Any]], rules: tuple[dict[str, Any], ...]) -> bool:
    return len(parts) == len(rules) and all(
        part.get(key) == value for part, rule in zip(parts, rules, strict=True) for key, value in rule.items()
    )
