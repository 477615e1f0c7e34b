"""Log-probabilities of tokens, in the two shapes that OpenAI has for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ropewalk.hf.use.growing_text import INCOMPLETE, PATIENCE
from ropewalk.serve.generation.request import Token

LOWEST = -9999.0  # JSON has no infinity

Written = Callable[[Sequence[int]], str]


class TextPlace(NamedTuple):
    """Where the next token begins: the characters before it, and tokens of a character that is not whole yet."""

    offset: int = 0
    pending: tuple[int, ...] = ()

    def after(self, token: int, written: Written) -> TextPlace:
        """The place after one more token. The tokens of one character all begin where it begins."""
        pending = (*self.pending, token)
        text = written(pending)
        if text.endswith(INCOMPLETE) and len(pending) < PATIENCE:
            return TextPlace(self.offset, pending)
        return TextPlace(self.offset + len(text))


def of_completion(tokens: Sequence[Token], written: Written, place: TextPlace) -> tuple[dict[str, Any], TextPlace]:
    """Lists by token, as completions have them, and the place in the text after them."""
    strings, offsets = [written([token.id]) for token in tokens], list[int]()
    for token in tokens:
        offsets.append(place.offset)
        place = place.after(token.id, written)
    tops = [_likeliest(token, string, written) for token, string in zip(tokens, strings, strict=True)]
    return {
        "tokens": strings,
        "token_logprobs": [None if token.logprob is None else _finite(token.logprob) for token in tokens],
        "top_logprobs": tops,
        "text_offset": offsets,
    }, place


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
        "bytes": None if INCOMPLETE in string else list(string.encode()),
    }


def _finite(logprob: float) -> float:
    return max(logprob, LOWEST)
