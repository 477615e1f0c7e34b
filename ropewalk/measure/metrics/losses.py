"""Loss and next-token accuracy by position, on texts of one length.

Legend: b text, n token.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import islice, pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from ropewalk.errors import DoesNotFit
from ropewalk.hf.checkpoint.tokens import token_ids
from ropewalk.hf.use.long_text import score_tokens
from ropewalk.methods.positions import Positions
from ropewalk.texts.corpora import Document, projects_in_turn

CURVE_BINS = 64  # of a text, for curves
TOKENS_PER_BATCH = 8192  # tokens in a batch


class TokenLosses(NamedTuple):
    """Of each token but the first, after all tokens before it."""

    losses_bn: Tensor  # in nats
    hits_bn: Tensor  # whether the token was the likeliest

    def of(self, wanted_n: Tensor) -> TokenLosses:
        """Those of some tokens of each text [tokens - 1]."""
        where = wanted_n.to(self.losses_bn.device)
        return TokenLosses(self.losses_bn[:, where], self.hits_bn[:, where])

    def last(self, count: int) -> TokenLosses:
        """Those of the last tokens of each text."""
        return TokenLosses(self.losses_bn[:, -count:], self.hits_bn[:, -count:])

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
    parts = [
        score_tokens(model, rows, numbers=numbers) for rows in torch.split(ids_bn, max(1, TOKENS_PER_BATCH // length))
    ]
    return TokenLosses(torch.cat([part.losses for part in parts]), torch.cat([part.hits for part in parts]))


def bits_per_byte(losses: Tensor, count: int) -> float:
    """The losses of tokens in bits, divided by the bytes of their text: comparable between tokenizers."""
    return float(losses.double().sum()) / math.log(2) / max(1, count)


def text_bytes(tokenizer: PreTrainedTokenizerBase, ids: Tensor) -> int:
    """The bytes of the text of some tokens."""
    return len(str(tokenizer.decode(ids)).encode())


def bin_means(values: Tensor, bins: int = CURVE_BINS, wanted: Tensor | None = None) -> list[float]:
    """Means over bins of equal size, or the values themselves if there are few; of the `wanted` ones alone.

    A bin without one has the mean of all.
    """
    where = torch.ones_like(values, dtype=torch.bool) if wanted is None else wanted.to(values.device)
    whole = float(values[where].double().mean())
    return [
        float(values[a:b][where[a:b]].double().mean()) if where[a:b].any() else whole
        for a, b in pairwise(edges(len(values), bins))
    ]


def edges(count: int, bins: int = CURVE_BINS) -> list[int]:
    """The beginnings of the bins, and the end of the last one."""
    bins = min(bins, count)
    return [round(n * count / bins) for n in range(bins + 1)]


class HeldOutTexts(NamedTuple):
    """Passages of held-out documents, [count, length], and the project of each."""

    ids_bn: Tensor
    projects: tuple[str, ...]


def passages(
    documents: Iterable[Document], tokenizer: PreTrainedTokenizerBase, *, length: int, count: int
) -> HeldOutTexts:
    """The middles of `count` documents that are long enough, of as many projects as there are.

    The beginnings of documents are alike: licences and imports.
    """
    taken = list(islice(projects_in_turn(_middles(documents, tokenizer, length)), count))
    if len(taken) < count:
        rule = f"one with {count} documents of {length} tokens"
        remedy = "give a larger corpus, or ask for fewer or shorter texts"
        raise DoesNotFit("corpus", rule, f"{len(taken)} of them", remedy=remedy)
    projects, middles = zip(*taken, strict=True)
    return HeldOutTexts(torch.stack(middles), projects)


def _middles(
    documents: Iterable[Document], tokenizer: PreTrainedTokenizerBase, length: int
) -> Iterator[tuple[str, Tensor]]:
    """The middle of every document that is long enough, with the document's project."""
    for document in documents:
        ids = token_ids(tokenizer, document.text)
        first = (len(ids) - length) // 2
        if first >= 0:
            yield document.project, ids[first : first + length].clone()  # a view would keep the whole text


def repeat_texts(ids_bn: Tensor, length: int) -> Tensor:
    """Texts repeated until they are `length` tokens long."""
    times = -(-length // ids_bn.shape[1])
    return ids_bn.repeat(1, times)[:, :length]
