"""A tokenizer as the vocabulary of a GGUF file: byte-level BPE under the rules that llama.cpp has a name for.

A tokenizer of another kind, or with other rules, is not written: a wrong name would split texts differently, without
an error. The file then has no vocabulary, and prompts are token ids.
"""

from __future__ import annotations

from typing import Any

import gguf

from ropewalk.engines.llama_cpp.gguf.pre_tokenizers import name_of
from ropewalk.errors import DoesNotFit
from ropewalk.files import read_json
from ropewalk.hf.checkpoint.begin_tokens import tokens_around


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
