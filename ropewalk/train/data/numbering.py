"""How tokens are numbered in training, and which texts are mixed."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor, nn
from torch.utils.data import Dataset
from transformers import PreTrainedTokenizerBase

from ropewalk.errors import DoesNotFit, InvalidValue
from ropewalk.hf.attach.handle import handle_of, host_of
from ropewalk.hf.runtime.forward_pass import DOCUMENTS
from ropewalk.hf.runtime.layer import NAME
from ropewalk.methods.positions import Positions, Sequential
from ropewalk.train.data.packs import PackedRows, Passages, Row, collate_items, draw_parts, require_rows
from ropewalk.train.data.tokens import TokenizedCorpus

# Rows numbered for training by an extension's positions (randomized, PoSE), in a form that the model understands.
#
# Each text of a row is numbered separately, from a generator that depends on the seed and the row's index alone.
# Numbers that jump no longer show where a text begins, so a row also has `documents`. Our attention reads that;
# transformers, which without a mask takes every jump for a new text, gets a mask.
#
# Legend: b row, n token.


class NumberedRows(Dataset[Row]):
    """Rows with other numbers; without a seed, the numbers of inference."""

    def __init__(self, rows: Dataset[Row], positions: Positions, *, seed: int | None = 0) -> None:
        self._rows, self._positions, self._seed = rows, positions, seed
        self.callbacks = getattr(rows, "callbacks", ())
        self.record = getattr(rows, "record", {})

    def __len__(self) -> int:
        return len(self._rows)  # type: ignore[arg-type]

    def __getitem__(self, index: int) -> Row:
        row = self._rows[index]
        if DOCUMENTS in row:  # numbered already
            return row
        documents = texts_of(row["position_ids"])
        generator = self._generator(index)
        return {**row, "position_ids": number_texts(documents, self._positions, generator), DOCUMENTS: documents}

    def _generator(self, index: int) -> Generator | None:
        if self._seed is None:
            return None
        return torch.Generator().manual_seed(Random(f"{self._seed}/numbers/{index}").getrandbits(63))


def number_texts(documents: Tensor, positions: Positions, generator: Generator | None) -> Tensor:
    """The numbers of tokens, drawn for each text by itself; rows are those of the last dimension."""
    numbers = []
    for row_n in documents.view(-1, documents.shape[-1]):
        counts = torch.unique_consecutive(row_n, return_counts=True)[1].tolist()
        numbers += [positions.number(count, generator) for count in counts]
    return torch.cat(numbers).view_as(documents)


def texts_of(positions: Tensor) -> Tensor:
    """The index of each token's text in its row, where texts are numbered from 0."""
    return (positions == 0).long().cumsum(-1)


def number_rows(model: nn.Module, rows: Dataset[Row], *, seed: int) -> Dataset[Row]:
    """The rows, numbered by the positions of the model's extension, if it has any."""
    handle = handle_of(model)
    positions = handle.extension.positions if handle is not None else None
    return rows if positions is None or isinstance(positions, Sequential) else NumberedRows(rows, positions, seed=seed)


class Collator:
    """Items as one batch, with document borders in the form that one model reads."""

    def __init__(self, model: nn.Module) -> None:
        self._config: Any = host_of(model).config.get_text_config()

    def __call__(self, items: list[Any]) -> Row:
        batch = collate_items(items)
        if DOCUMENTS not in batch or self._config._attn_implementation == NAME:
            return batch
        documents = batch.pop(DOCUMENTS)
        return {**batch, "attention_mask": self.mask(documents)}

    def mask(self, documents_bn: Tensor) -> Tensor:
        """For transformers, where numbers jump: ones if every row is one text, else a mask of all pairs of tokens."""
        if (documents_bn == documents_bn[:, :1]).all():
            return torch.ones_like(documents_bn)
        self._require_pairs()
        visible = (documents_bn[:, None, :, None] == documents_bn[:, None, None, :]).tril()
        if self._config._attn_implementation == "sdpa":
            return visible
        return torch.zeros(visible.shape, device=visible.device).masked_fill(~visible, torch.finfo(torch.float32).min)

    def _require_pairs(self) -> None:
        """Refuse a model with its own masks, or with attention that takes none."""
        attention = self._config._attn_implementation
        kinds = set(getattr(self._config, "layer_types", None) or ["full_attention"])
        windowed = kinds != {"full_attention"} or getattr(self._config, "sliding_window", None) is not None
        if attention not in ("sdpa", "eager") or windowed:
            got = f"{attention}, {', '.join(sorted(kinds))}" if windowed else attention
            remedy = "extend the model (Ropewalk's attention handles packed texts), or train on one text per row"
            raise DoesNotFit("attention", "sdpa or eager without windows where texts are packed", got, remedy=remedy)


# Data sets mixed by shares: of sources, or of documents by length.


SHARES_ATOL = 1e-6  # of shares to 1


class Mixture(Dataset[Row]):
    """`count` rows from several data sets with rows of one length, by their shares of the rows, thus of the tokens."""

    def __init__(self, parts: Sequence[tuple[float, Dataset[Row]]], *, count: int, seed: int = 0) -> None:
        shares = [share for share, _ in parts]
        if not shares or min(shares) < 0 or abs(sum(shares) - 1) > SHARES_ATOL:
            raise InvalidValue("shares", "all at least 0, with a sum of 1", shares)
        self._parts = [rows for _, rows in parts]
        _require_alike(self._parts)
        self._kinds = draw_parts(np.divide(shares, sum(shares)).tolist(), count, seed)
        self._ordinals = np.zeros(count, dtype=np.int64)
        for kind, rows in enumerate(self._parts):
            of_kind = self._kinds == kind
            self._ordinals[of_kind] = np.arange(of_kind.sum())
            require_rows(f"data set {kind}", rows, int(of_kind.sum()))

    def __len__(self) -> int:
        return len(self._kinds)

    def __getitem__(self, index: int) -> Row:
        row: Row = self._parts[self._kinds[index]][int(self._ordinals[index])]
        return row


def mix_two_lengths(
    corpus: TokenizedCorpus,
    tokenizer: PreTrainedTokenizerBase,
    *,
    short: int,
    share: float,
    length: int,
    count: int,
    seed: int = 0,
    **more: Any,
) -> Mixture:
    """Rows of one length: some hold several short texts, the others longer documents.

    Source of mixing both in one training: Shang et al. 2025, arXiv:2502.20082 (LongRoPE2). There a long text is
    stretched from its first token on; here the table belongs to the row of attention, in training as in use.

    Args:
        corpus: the documents, as tokens.
        tokenizer: the model's.
        short: tokens of a short text.
        share: of the rows that hold short texts.
        length: tokens of a row.
        count: rows in all.
        seed: of the order of documents and of the draw by shares.
        more: passed on to the rows of longer documents.
    """
    longer = corpus.between(short + 1)
    if not len(longer):
        rule = f"one with documents of {short + 1} or more tokens"
        raise DoesNotFit("corpus", rule, "none", remedy="shorten the short texts, or take another corpus")
    how: dict[str, Any] = {"length": length, "count": count, "seed": seed}
    parts = [
        (share, PackedRows(Passages(corpus, short), tokenizer, **how)),
        (1 - share, PackedRows(longer, tokenizer, **how, **more)),
    ]
    return Mixture(parts, count=count, seed=seed)


def _require_alike(parts: Sequence[Dataset[Row]]) -> None:
    """Refuse rows that do not fit one batch: of different lengths, or only some of them numbered."""
    items = [rows[0] for rows in parts if len(rows)]  # type: ignore[arg-type]
    kinds = [{name: value.shape[-1] for name, value in item.items()} for item in items]
    for kind in kinds:
        if kind != kinds[0]:
            rule = f"of one kind and length in all data sets ({kinds[0]})"
            raise DoesNotFit("rows", rule, kind, remedy="mix first, then number the mixture")
