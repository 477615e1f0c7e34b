"""Documents packed into rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor
from torch.utils.data import Dataset
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from ropewalk.errors import DoesNotFit, InvalidValue
from ropewalk.hf.checkpoint.tokens import begin_tokens
from ropewalk.train.data.puzzles import KINDS, PuzzleMaker, pack
from ropewalk.train.data.tokens import Numbers, TokenizedCorpus

# Documents cut into passages of one length, for training rows with one text each.


class Passages(TokenizedCorpus):
    """The passages of a corpus as documents; shorter ends are left out."""

    def __init__(self, corpus: TokenizedCorpus, length: int) -> None:
        self._corpus, self._length = corpus, length
        self._counts = corpus.lengths // length
        self._ends = np.cumsum(self._counts)
        if not len(self._ends) or not self._ends[-1]:
            longest = int(corpus.lengths.max(initial=0))
            raise DoesNotFit("corpus", f"one with a document of {length} tokens", f"at most {longest}")
        self.lengths = np.full(int(self._ends[-1]), length, dtype=np.int64)

    def __getitem__(self, index: int) -> Numbers:
        nth = int(np.searchsorted(self._ends, index, side="right"))
        first = (index - int(self._ends[nth] - self._counts[nth])) * self._length
        return self._corpus[nth][first : first + self._length]


# A byte-level BPE vocabulary without unknown tokens; every digit is a token, and one token ends a text.


END = "<|end|>"
BYTES = 256


def train_tokenizer(texts: Iterable[str], *, size: int = 2048) -> PreTrainedTokenizerFast:
    """A tokenizer of transformers with `size` tokens, trained on some texts."""
    if size <= BYTES + 1:
        raise InvalidValue("vocabulary", f"above {BYTES + 1}, the bytes and the end of a text", size)
    bpe = Tokenizer(models.BPE())
    # Numbers are split into digits, so that no number is a token that training has never seen.
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=[END], initial_alphabet=alphabet, show_progress=False)
    bpe.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=bpe, bos_token=END, eos_token=END, pad_token=END, clean_up_tokenization_spaces=False
    )


# Training rows: documents one after the other, cut to length, each numbered from 0; and puzzles by their share.
#
# Row i is a function of the seed and of i alone: training resumes in the middle of an epoch, on any number of
# processes.


SHORTEST_ROW = 2  # tokens of a row
IGNORED = -100  # a label without loss
NO_SHARES: Mapping[str, float] = {}
Row = dict[str, Tensor]


class PackedRows(Dataset[Row]):
    """`count` rows of `length` tokens; with a marker every text of a row begins with it."""

    def __init__(
        self,
        corpus: TokenizedCorpus,
        tokenizer: PreTrainedTokenizerBase,
        *,
        length: int,
        count: int,
        seed: int = 0,
        puzzles: Mapping[str, float] = NO_SHARES,
        marker: int | None = None,
    ) -> None:
        _require_shares(puzzles)
        if length < SHORTEST_ROW:
            raise InvalidValue("length", f"at least {SHORTEST_ROW}, since the first token of a row has no loss", length)
        self._whole = int(corpus.lengths.sum())
        if self._whole < length:
            rule = f"at least one row of {length} tokens"
            raise DoesNotFit("corpus", rule, f"{self._whole} tokens", remedy="take a larger one, or a shorter length")
        self._corpus, self._length, self._seed, self._marker = corpus, length, seed, marker
        self._begin = begin_tokens(tokenizer)
        self._kinds = draw_parts([1 - sum(puzzles.values()), *puzzles.values()], count, seed)
        self._ordinals = np.cumsum(self._kinds == 0) - 1  # of each row of real text among those rows
        self._names = ("", *puzzles)
        self._orders: dict[int, tuple[Numbers, Numbers]] = {}
        encode = partial(tokenizer.encode, add_special_tokens=False)  # a worker process can be given it
        self._maker = PuzzleMaker(encode, self._filler, len(tokenizer))

    def __len__(self) -> int:
        return len(self._kinds)

    def __getitem__(self, index: int) -> Row:
        kind = self._names[self._kinds[index]]
        texts = self._puzzles(kind, index) if kind else self._documents(int(self._ordinals[index]))
        return row_of(texts if self._marker is None else [_mark(text, (self._marker,)) for text in texts])

    def _puzzles(self, kind: str, index: int) -> list[Numbers]:
        puzzles = pack(self._maker, kind, Random(f"{self._seed}/{index}"), self._length)
        return [_mark(np.asarray(tokens, dtype=np.int64), self._begin) for tokens in puzzles]

    def _documents(self, ordinal: int) -> list[Numbers]:
        """The texts of one row of the endless stream: all documents, shuffled again in every epoch."""
        begin, texts, missing = ordinal * self._length, list[Numbers](), self._length
        while missing:
            epoch, place = divmod(begin, self._whole)
            order, ends = self._order(epoch)
            nth = int(np.searchsorted(ends, place, side="right"))
            document = self._corpus[order[nth]]
            first = place - int(ends[nth]) + len(document)
            texts.append(document[first : first + missing])
            begin, missing = begin + len(texts[-1]), missing - len(texts[-1])
        return texts

    def _order(self, epoch: int) -> tuple[Numbers, Numbers]:
        """The documents' order in one epoch, and where each ends."""
        if epoch not in self._orders:
            order = np.random.default_rng((self._seed, epoch)).permutation(len(self._corpus))
            self._orders = {epoch: (order, np.cumsum(self._corpus.lengths[order]))}
        return self._orders[epoch]

    def _filler(self, random: Random, length: int) -> list[int]:
        """Real text from anywhere."""
        tokens: list[int] = []
        while len(tokens) < length:
            document = self._corpus[random.randrange(len(self._corpus))]
            begin = random.randrange(max(1, len(document) - length))
            tokens += document[begin : begin + length - len(tokens)].tolist()
        return tokens


def _mark(text: Numbers, markers: Sequence[int]) -> Numbers:
    """Markers in place of the first tokens: the very first has no loss."""
    marked: Numbers = text.copy()
    marked[: len(markers)] = markers[: len(text)]
    return marked


def row_of(texts: list[Numbers]) -> Row:
    """Texts in one row: each numbered from 0, and its first token without a label."""
    tokens = torch.from_numpy(np.concatenate(texts))
    positions = torch.cat([torch.arange(len(text)) for text in texts])
    return {
        "input_ids": tokens,
        "position_ids": positions,
        "labels": tokens.masked_fill(positions == 0, IGNORED),
    }


def draw_parts(shares: Sequence[float], count: int, seed: int) -> Numbers:
    """The part of each row, at random by the shares: row i depends on the seed and on i alone."""
    parts: Numbers = np.random.default_rng((seed, 7)).choice(len(shares), size=count, p=shares)
    return parts


def require_rows(name: str, rows: Any, count: int) -> None:
    """Refuse a data set with fewer rows than are read of it."""
    if len(rows) < count:
        sentence = f"{name} must have at least {count} rows, got {len(rows)}"
        raise DoesNotFit.because(name, sentence, remedy="make it with a larger count")


def _require_shares(puzzles: Mapping[str, float]) -> None:
    unknown = [name for name in puzzles if name not in KINDS]
    if unknown:
        raise InvalidValue("puzzles", f"among {', '.join(KINDS)}", unknown)
    if any(share < 0 for share in puzzles.values()) or sum(puzzles.values()) > 1:
        raise InvalidValue("puzzles", "shares of at least 0 with a sum of at most 1", dict(puzzles))


def collate_items(items: list[Any]) -> Row:
    """Items as one batch; an item is a row, or several rows of one length."""
    return {name: torch.cat([item[name].view(-1, item[name].shape[-1]) for item in items]) for name in items[0]}
