"""The tokens that a tokenizer puts before every text, such as Llama's begin-of-text token; often there are none.

A model that was trained with them reads no text well without them: the first one is its attention sink.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def begin_tokens(tokenizer: Any) -> tuple[int, ...]:
    """What stands before a letter when special tokens are added to it."""
    return tokens_around(tokenizer)[0]


def tokens_around(tokenizer: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What stands before and behind a letter when special tokens are added to it."""
    plain, whole = (
        list(tokenizer("a", add_special_tokens=added, verbose=False)["input_ids"]) for added in (False, True)
    )
    places = range(len(whole) - len(plain) + 1)
    place = next((place for place in places if whole[place:][: len(plain)] == plain), None)
    return ((), ()) if place is None else (tuple(whole[:place]), tuple(whole[place + len(plain) :]))


def add_begin_tokens(ids_n: Tensor, begin: Sequence[int], length: int) -> Tensor:
    """The last tokens of a text, after those that begin one: at most `length` in all.

    begun(torch.tensor([5, 6, 7, 8]), (1,), 3)    # 1, 7, 8
    """
    first = torch.tensor(begin[:length], dtype=ids_n.dtype, device=ids_n.device)
    return torch.cat([first, ids_n[max(0, len(ids_n) - length + len(first)) :]])
