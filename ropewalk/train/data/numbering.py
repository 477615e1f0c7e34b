"""Rows numbered for training by an extension's positions (randomized, PoSE), in a form that the model understands.

Each text of a row is numbered separately, from a generator that depends on the seed and the row's index alone. Numbers
that jump no longer show where a text begins, so a row also has `documents`. Our attention reads that; transformers,
which without a mask takes every jump for a new text, gets a mask.

Legend: b row, n token.
"""

from __future__ import annotations

from random import Random
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.utils.data import Dataset

from ropewalk.errors import DoesNotFit
from ropewalk.hf.attach.handle import handle_of, host_of
from ropewalk.hf.runtime.forward_pass import DOCUMENTS
from ropewalk.hf.runtime.layer import NAME
from ropewalk.methods.positions import Positions, Sequential
from ropewalk.train.data.packs import Row, collate_items


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
        numbers = [self._number(row_n, generator) for row_n in documents.view(-1, documents.shape[-1])]
        return {**row, "position_ids": torch.cat(numbers).view_as(documents), DOCUMENTS: documents}

    def _generator(self, index: int) -> Generator | None:
        if self._seed is None:
            return None
        return torch.Generator().manual_seed(Random(f"{self._seed}/numbers/{index}").getrandbits(63))

    def _number(self, documents_n: Tensor, generator: Generator | None) -> Tensor:
        counts = torch.unique_consecutive(documents_n, return_counts=True)[1].tolist()
        return torch.cat([self._positions.number(count, generator) for count in counts])


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
        return {**batch, "attention_mask": self._mask(documents)}

    def _mask(self, documents_bn: Tensor) -> Tensor:
        """Ones where every row is one text, else a mask of all pairs of tokens."""
        if (documents_bn == documents_bn[:, :1]).all():
            return torch.ones_like(documents_bn)
        self._require_pairs()
        visible = (documents_bn[:, None, :, None] == documents_bn[:, None, None, :]).tril()
        if self._config._attn_implementation == "sdpa":
            return visible
        return torch.zeros(visible.shape).masked_fill(~visible, torch.finfo(torch.float32).min)

    def _require_pairs(self) -> None:
        """Refuse a model with its own masks, or with attention that takes none."""
        attention = self._config._attn_implementation
        kinds = set(getattr(self._config, "layer_types", None) or ["full_attention"])
        windowed = kinds != {"full_attention"} or getattr(self._config, "sliding_window", None) is not None
        if attention not in ("sdpa", "eager") or windowed:
            got = f"{attention}, {', '.join(sorted(kinds))}" if windowed else attention
            remedy = "extend the model (Ropewalk's attention handles packed texts), or train on one text per row"
            raise DoesNotFit("attention", "sdpa or eager without windows where texts are packed", got, remedy=remedy)
