"""One very long text, read in chunks through the cache: loss, time and memory by position.

Under a reach that forgets (a window, sinks) nothing grows with the text. Chunks only make reading faster: what a token
sees does not depend on them (hf/use/long_text.py).

Protocol: Xiao et al. 2023, arXiv:2309.17453, sec. 4.1, books joined to 4 million tokens; Han et al. 2023,
arXiv:2308.16137, sec. 5.
Deviation: there tokens are read one by one; here in chunks, with the same numbers.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from ropewalk.errors import InvalidValue
from ropewalk.hf.checkpoint.tokens import add_begin_tokens, begin_tokens, token_ids
from ropewalk.hf.use.long_text import CHUNK_LEN, Progress, ReadChunk, read
from ropewalk.measure.metrics.losses import bits_per_byte, edges, text_bytes
from ropewalk.methods.spec import Json
from ropewalk.texts.corpora import documents

FEWEST_TOKENS = 2  # tokens: one to read and one to predict


class HeldOutText(NamedTuple):
    """Held-out documents, joined."""

    ids: Tensor  # [tokens]
    documents: int  # how many were used
    rounds: float  # how often they were read: above 1 where the corpus is too short


class StreamSection(NamedTuple):
    """A part of the text."""

    stop: int  # tokens read at its end
    loss: float  # nats per token
    accuracy: float
    milliseconds: float  # per token
    cache_bytes: int  # at its end


@dataclass(frozen=True, kw_only=True)
class StreamResult:
    """The results of reading a long text."""

    tokens: int
    piece: int
    documents: int
    rounds: float
    loss: float
    accuracy: float
    bits_per_byte: float
    seconds: float
    processor_seconds: float  # of all threads
    cache_bytes: int  # at most
    process_bytes: int  # at most, with everything that the process has loaded; 0 if unknown
    stretches: tuple[StreamSection, ...]

    def to_json(self) -> Json:
        """Everything."""
        return asdict(self) | {"stretches": [section._asdict() for section in self.stretches]}


def long_text(tokenizer: PreTrainedTokenizerBase, corpus: str, count: int) -> HeldOutText:
    """The first `count` tokens of a corpus, which is repeated if it is too short."""
    if count < FEWEST_TOKENS:
        raise InvalidValue("tokens", f"at least {FEWEST_TOKENS}", count)
    texts: list[Tensor] = []
    total = 0
    for document in documents(corpus, "held out"):
        texts.append(token_ids(tokenizer, document.text))
        total += len(texts[-1])
        if total >= count:
            break
    whole, begin = torch.cat(texts).repeat(-(-count // total)), begin_tokens(tokenizer)
    return HeldOutText(add_begin_tokens(whole[: count - len(begin)], begin, count), len(texts), count / total)


def read_stream(
    model: nn.Module,
    tokenizer: PreTrainedTokenizerBase,
    text: HeldOutText,
    *,
    piece: int = CHUNK_LEN,
    progress: Progress = lambda done, total: None,
) -> StreamResult:
    """Read a text with the model as it is, with or without an extension."""
    count, ids = len(text.ids), text.ids[None].to(next(model.parameters()).device)
    began, worked = time.perf_counter(), time.process_time()
    parts = []
    for part in _time_chunks(read(model, ids, piece=piece)):
        parts.append(part)
        progress(min(piece * len(parts), count), count)
    seconds, processor_seconds = time.perf_counter() - began, time.process_time() - worked
    losses = torch.tensor([part.losses for part in parts], dtype=torch.float64)
    return StreamResult(
        tokens=count,
        piece=piece,
        documents=text.documents,
        rounds=text.rounds,
        loss=float(losses.sum()) / (count - 1),
        accuracy=sum(part.hits for part in parts) / (count - 1),
        bits_per_byte=bits_per_byte(losses, text_bytes(tokenizer, text.ids[1:])),
        seconds=seconds,
        processor_seconds=processor_seconds,
        cache_bytes=max(part.cache_bytes for part in parts),
        process_bytes=_peak_memory(),
        stretches=tuple(_sections(parts)),
    )


class ChunkLosses(NamedTuple):
    """The numbers of a chunk."""

    tokens: int
    losses: float  # their sum
    hits: int
    seconds: float
    cache_bytes: int


def _time_chunks(parts: Iterator[ReadChunk]) -> Iterator[ChunkLosses]:
    """The numbers of each chunk, with its time."""
    began = time.perf_counter()
    for part in parts:
        losses, hits = float(part.losses.double().sum()), int(part.hits.sum())  # waits for the device
        now = time.perf_counter()
        yield ChunkLosses(part.losses.numel(), losses, hits, now - began, part.cache_bytes)
        began = now


def _sections(parts: Sequence[ChunkLosses]) -> Iterator[StreamSection]:
    """Sections of equal numbers of chunks."""
    stop = 1
    for first, last in pairwise(edges(len(parts))):
        chunks = parts[first:last]
        tokens = sum(chunk.tokens for chunk in chunks)
        stop += tokens
        loss, accuracy = sum(chunk.losses for chunk in chunks) / tokens, sum(chunk.hits for chunk in chunks) / tokens
        took = 1000 * sum(chunk.seconds for chunk in chunks) / tokens
        yield StreamSection(stop, loss, accuracy, took, chunks[-1].cache_bytes)


def _peak_memory() -> int:
    """Of the process so far; systems count it in kilobytes, macOS in bytes."""
    if sys.platform == "win32":
        return 0
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
