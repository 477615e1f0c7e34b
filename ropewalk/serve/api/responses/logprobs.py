"""Log-probabilities of tokens, in the two shapes that OpenAI has for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ropewalk.serve.api.requests.texts import HALF
from ropewalk.serve.generation.request import Token

LOWEST = -9999.0  # JSON has no infinity

Written = Callable[[Sequence[int]], str]


def of_completion(tokens: Sequence[Token], written: Written, offset: int) -> tuple[dict[str, Any], int]:
    """Lists by token, as completions have them, and the offset of the text after them."""
    strings, offsets = [written([token.id]) for token in tokens], list[int]()
    for string in strings:
        offsets.append(offset)
        offset += len(string)
    tops = [_likeliest(token, string, written) for token, string in zip(tokens, strings, strict=True)]
    return {
        "tokens": strings,
        "token_logprobs": [None if token.logprob is None else _finite(token.logprob) for token in tokens],
        "top_logprobs": tops,
        "text_offset": offsets,
    }, offset


def _likeliest(token: Token, string: str, written: Written) -> dict[str, float] | None:
    """The likeliest tokens, and the token itself; nothing where it was not predicted."""
    if token.logprob is None:
        return None
    return {**{written([id]): _finite(logprob) for id, logprob in token.top}, string: _finite(token.logprob)}


def of_chat(tokens: Sequence[Token], written: Written) -> dict[str, Any]:
    """An object by token, as chats have them."""
    content = [
        {
            **_entry(token.id, token.logprob or 0.0, written),
            "top_logprobs": [_entry(id, logprob, written) for id, logprob in token.top],
        }
        for token in tokens
    ]
    return {"content": content, "refusal": None}


def _entry(id: int, logprob: float, written: Written) -> dict[str, Any]:
    string = written([id])
    return {
        "token": string,
        "logprob": _finite(logprob),
        "bytes": None if HALF in string else list(string.encode()),
    }


def _finite(logprob: float) -> float:
    return max(logprob, LOWEST)
