"""A corpus as tokens on disk, read document by document."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset, Features, List, Value
from datasets.exceptions import DatasetGenerationError  # type: ignore[import-untyped]
from transformers import PreTrainedTokenizerBase

from ropewalk.errors import DoesNotFit, RopewalkError, Unreadable
from ropewalk.files import why
from ropewalk.folders import refuse_full_disk
from ropewalk.hf.checkpoint.tokens import begin_tokens, token_ids
from ropewalk.texts.corpora import Split, documents

BATCH, CHARACTERS = (
    256,
    1_000_000,
)  # documents and their characters that are tokenised at a time
Numbers = np.ndarray[Any, np.dtype[np.int64]]


class TokenizedCorpus:
    """The documents of one split as token ids: what begins a text, if anything, the text, and the end token."""

    def __init__(self, rows: Dataset) -> None:
        self.lengths: Numbers = np.asarray(rows["length"], dtype=np.int64)
        self._rows = rows.with_format("numpy", columns=["tokens"])

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> Numbers:
        tokens: Numbers = self._rows[int(index)]["tokens"].astype(np.int64)
        return tokens

    def between(self, shortest: int = 0, longest: int | None = None) -> TokenizedCorpus:
        """The documents of at least `shortest` and less than `longest` tokens."""
        inside = self.lengths >= shortest
        if longest is not None:
            inside &= self.lengths < longest
        return TokenizedCorpus(self._rows.with_format(None).select(np.flatnonzero(inside)))


def tokenise(
    source: str, split: Split, tokenizer: PreTrainedTokenizerBase, folder: Path, *, most: int | None = None
) -> TokenizedCorpus:
    """The documents of a split as tokens. A corpus is tokenised once: the next call reads it from the folder.

    Args:
        source: of the documents, as `ropewalk.texts.corpora` lists them.
        split: the part of the source.
        tokenizer: the model's.
        folder: where the tokens are kept.
        most: characters that are read, or a little more; by default all.
    """
    begin = begin_tokens(tokenizer)
    parts = (source, split, most, sorted(tokenizer.get_vocab().items()), *([begin] if begin else []))
    mark = hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
    arguments = {"source": source, "split": split, "tokenizer": tokenizer, "most": most}
    with _name_errors(folder):
        rows = Dataset.from_generator(
            _rows,
            gen_kwargs=arguments,
            features=Features({"tokens": List(Value("int32")), "length": Value("int64")}),
            cache_dir=str(folder),
            fingerprint=mark,
        )
        return TokenizedCorpus(rows)


@contextmanager
def _name_errors(folder: Path) -> Iterator[None]:
    """Report what goes wrong while a corpus is tokenised or read as our errors."""
    try:
        with refuse_full_disk(folder, "make room and start again"):
            yield
    except DatasetGenerationError as wrapped:
        if isinstance(wrapped.__cause__, RopewalkError):
            raise wrapped.__cause__ from None
        raise
    except (RopewalkError, MemoryError):
        raise
    except Exception as wrong:  # broken files raise every kind of error
        remedy = f"{type(wrong).__name__}: {why(wrong)}; remove it, and the corpus is tokenised again"
        raise Unreadable("corpus", "unchanged since it was tokenised", str(folder), remedy=remedy) from wrong


def _rows(source: str, split: Split, tokenizer: Any, most: int | None) -> Iterator[dict[str, Any]]:
    waiting: list[str] = []
    characters = 0
    for document in documents(source, split, most=most):
        if waiting and (len(waiting) == BATCH or characters + len(document.text) > CHARACTERS):
            yield from _encode(waiting, tokenizer)
            waiting, characters = [], 0
        waiting.append(document.text)
        characters += len(document.text)
    yield from _encode(waiting, tokenizer)


def end_token(tokenizer: PreTrainedTokenizerBase) -> int:
    """The token that ends a document; a tokenizer without one is refused."""
    end: int | None = tokenizer.eos_token_id
    if end is None:
        remedy = "set its eos_token to one of its tokens, and save it beside the model"
        raise DoesNotFit("tokenizer", "one with an end token (EOS), which ends every text", end, remedy=remedy)
    return end


def _encode(texts: list[str], tokenizer: Any) -> Iterator[dict[str, Any]]:
    if not texts:
        return
    begin, end = begin_tokens(tokenizer), end_token(tokenizer)
    for tokens in _ids(texts, tokenizer):
        whole = np.concatenate([begin, tokens, [end]]).astype(np.int32)
        yield {"tokens": whole, "length": len(whole)}


def _ids(texts: list[str], tokenizer: Any) -> Iterable[Any]:
    """Of a single text in pieces, since it may be long; of several at once, which uses all cores."""
    if len(texts) == 1:
        return [token_ids(tokenizer, texts[0]).numpy()]
    ids: list[list[int]] = tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]
    return ids
