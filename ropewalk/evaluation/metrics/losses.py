"""Loss and next-token accuracy by position, on texts of one length.

Legend: b text, n token.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from ropewalk.corpora import Document
from ropewalk.errors import DoesNotFit
from ropewalk.hf import score_tokens
from ropewalk.positions import Positions

BINS = 64  # of a text, for curves
ROWS = 8192  # tokens in a batch


class TokenLosses(NamedTuple):
    """Of each token but the first, after all tokens before it."""

    losses_bn: Tensor  # in nats
    hits_bn: Tensor  # whether the token was the likeliest

    def loss(self, last: int | None = None) -> float:
        """The mean over all tokens, or over the `last` ones of each text."""
        return float(self.losses_bn[:, -(last or 0) :].double().mean())

    def accuracy(self, last: int | None = None) -> float:
        """The share of hits over all tokens, or over the `last` ones of each text."""
        return float(self.hits_bn[:, -(last or 0) :].double().mean())


def token_losses(model: nn.Module, ids_bn: Tensor, *, numbering: Positions | None = None) -> TokenLosses:
    """Read texts of one length; `numbering` gives positions other than 0, 1, 2, ..."""
    length = ids_bn.shape[1]
    numbers = None if numbering is None else numbering.number(length)
    parts = [score_tokens(model, rows, numbers=numbers) for rows in torch.split(ids_bn, max(1, ROWS // length))]
    return TokenLosses(torch.cat([part.losses for part in parts]), torch.cat([part.hits for part in parts]))


def bits_per_byte(losses: Tensor, count: int) -> float:
    """The losses of tokens in bits, divided by the bytes of their text: comparable between tokenizers."""
    return float(losses.double().sum()) / math.log(2) / max(1, count)


def text_bytes(tokenizer: PreTrainedTokenizerBase, ids: Tensor) -> int:
    """The bytes of the text of some tokens."""
    return len(str(tokenizer.decode(ids)).encode())


def binned(values: Tensor, bins: int = BINS) -> list[float]:
    """Means over bins of equal size, or the values themselves if there are few."""
    return [float(values[a:b].double().mean()) for a, b in pairwise(edges(len(values), bins))]


def edges(count: int, bins: int = BINS) -> list[int]:
    """The beginnings of the bins, and the end of the last one."""
    bins = min(bins, count)
    return [round(n * count / bins) for n in range(bins + 1)]


def passages(documents: Iterable[Document], tokenizer: PreTrainedTokenizerBase, *, length: int, count: int) -> Tensor:
    """The middles of the first `count` documents that are long enough, [count, length].

    The beginnings of documents are alike: licences and imports.
    """
    middles: list[Tensor] = []
    for document in documents:
        tokens = tokenizer.encode(document.text, add_special_tokens=False, verbose=False)
        if len(tokens) >= length:
            first = (len(tokens) - length) // 2
            middles.append(torch.tensor(tokens[first : first + length]))
        if len(middles) == count:
            return torch.stack(middles)
    remedy = "give a larger corpus, or ask for fewer or shorter texts"
    raise DoesNotFit(
        "corpus", f"one with {count} documents of {length} tokens", f"{len(middles)} of them", remedy=remedy
    )


def repeated(ids_bn: Tensor, length: int) -> Tensor:
    """Texts repeated until they are `length` tokens long."""
    times = -(-length // ids_bn.shape[1])
    return ids_bn.repeat(1, times)[:, :length]
