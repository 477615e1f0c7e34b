"""Whether llama.cpp's converter recognizes a tokenizer, and the line to add where it does not.

It recognizes a byte-level tokenizer by the hash of the tokens of one text, so a new vocabulary is unknown even under
common rules; it then stops with "BPE pre-tokenizer was not recognized".
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from ropewalk.files import read_json

# The text of get_vocab_base_pre in llama.cpp's conversion/base.py (2026-08).
TEXT = (
    "\n \n\n \n\n\n \t \t\t \t\n  \n   \n    \n     \n🚀 (normal) 😶\u200d🌫️ (multiple emojis concatenated) ✅ 🦙🦙 "
    "3 33 333 3333 33333 333333 3333333 33333333 3.3 3..3 3...3 កាន់តែពិសេសអាច😁 ?我想在apple工作1314151天～ "
    "------======= нещо на Български "
    "''''''```````\"\"\"\"......!!!!!!?????? I've been 'told he's there, 'RE you sure? 'M not sure I'll make it, "
    "'D you like some tea? We'Ve a'lL"
)
GPT2 = {"type": "ByteLevel", "use_regex": True, "add_prefix_space": False}
DIGITS = {"type": "Digits", "individual_digits": True}
KNOWN = [([DIGITS, GPT2], "smollm"), ([GPT2], "gpt-2")]  # rules of llama.cpp that split texts equally


def of_llama_cpp(tokenizer: Any | None) -> list[str]:
    """The line that its converter needs, where it has the same rules under a name; else nothing."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return []
    rules = read_json(backend.to_str(), "tokenizer")["pre_tokenizer"] or {}
    parts = rules.get("pretokenizers", [rules])
    name = next((name for rules_known, name in KNOWN if _alike(parts, rules_known)), None)
    if name is None:
        return []
    digest = sha256(str(tokenizer.encode(TEXT)).encode()).hexdigest()  # type: ignore[union-attr]
    line = f'if chkhsh == "{digest}": res = "{name}"'
    return [f"if convert_hf_to_gguf.py does not recognize the pre-tokenizer, add to its get_vocab_base_pre: {line}"]


def _alike(parts: list[dict[str, Any]], rules: list[dict[str, Any]]) -> bool:
    return len(parts) == len(rules) and all(
        part.get(key) == value for part, rule in zip(parts, rules, strict=True) for key, value in rule.items()
    )
