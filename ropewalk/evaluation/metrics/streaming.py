"""One very long text through the cache, piece by piece: its loss against the position, its time and its memory.

Under a reach that forgets (a window, sinks) nothing grows with the text. Each token sees what its own window says,
however the text is cut (hf/use/long_text.py): pieces are for speed alone.

Protocol: Xiao et al. 2023, arXiv:2309.17453, sec. 4.1, books joined to 4 million tokens; Han et al. 2023,
arXiv:2308.16137, sec. 5.
Deviation: there tokens are read one by one; here by pieces, with the same numbers.
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

from ropewalk.corpora import documents
from ropewalk.errors import InvalidValue
from ropewalk.evaluation.metrics.losses import bits_per_byte, edges, text_bytes
from ropewalk.hf import read
from ropewalk.hf.use.long_text import PIECE, Progress, ReadChunk
from ropewalk.spec import Json

LEAST = 2  # tokens: one that is read and one that is told


class HeldOutText(NamedTuple):
    """Held-out documents one after the other."""

    ids: Tensor  # [tokens]
    documents: int  # all there were, or as many as were needed
    rounds: float  # how often they were told: more than 1 where they were used up and begun again


class StreamSection(NamedTuple):
    """A part of the text."""

    stop: int  # tokens read at its end
    loss: float  # nats per token
    accuracy: float
    milliseconds: float  # per token
    cache_bytes: int  # at its end


@dataclass(frozen=True, kw_only=True)
class StreamResult:
    """What reading a long text came to."""

    tokens: int
    piece: int
    documents: int
    rounds: float
    loss: float
    accuracy: float
    bits_per_byte: float
    seconds: float
    processor_seconds: float  # of all threads
    cache_bytes: int  # the most
    process_bytes: int  # the most that the process held, all that it has loaded included; 0 where that is not known
    stretches: tuple[StreamSection, ...]

    def to_json(self) -> Json:
        """Everything."""
        return asdict(self) | {"stretches": [each._asdict() for each in self.stretches]}


def long_text(tokenizer: PreTrainedTokenizerBase, corpus: str, count: int) -> HeldOutText:
    """So many tokens of a corpus, from its beginning again as often as need be."""
    if count < LEAST:
        raise InvalidValue("tokens", f"at least {LEAST}", count)
    found: list[Tensor] = []
    total = 0
    for each in documents(corpus, "held out"):
        ids = tokenizer(each.text, add_special_tokens=False, verbose=False)["input_ids"]
        found.append(torch.tensor(ids, dtype=torch.long))
        total += len(ids)
        if total >= count:
            break
    whole = torch.cat(found)
    return HeldOutText(whole.repeat(-(-count // total))[:count], len(found), count / total)


def streamed(
    model: nn.Module,
    tokenizer: PreTrainedTokenizerBase,
    text: HeldOutText,
    *,
    piece: int = PIECE,
    progress: Progress = lambda done, total: None,
) -> StreamResult:
    """Read a text as the model is, under an extension or none."""
    count, ids = len(text.ids), text.ids[None].to(next(model.parameters()).device)
    began, worked = time.perf_counter(), time.process_time()
    parts = []
    for each in _timed(read(model, ids, piece=piece)):
        parts.append(each)
        progress(min(piece * len(parts), count), count)
    seconds, processor_seconds = time.perf_counter() - began, time.process_time() - worked
    losses = torch.tensor([each.losses for each in parts], dtype=torch.float64)
    return StreamResult(
        tokens=count,
        piece=piece,
        documents=text.documents,
        rounds=text.rounds,
        loss=float(losses.sum()) / (count - 1),
        accuracy=sum(each.hits for each in parts) / (count - 1),
        bits_per_byte=bits_per_byte(losses, text_bytes(tokenizer, text.ids[1:])),
        seconds=seconds,
        processor_seconds=processor_seconds,
        cache_bytes=max(each.cache_bytes for each in parts),
        process_bytes=_most_held(),
        stretches=tuple(_stretches(parts)),
    )


class ChunkLosses(NamedTuple):
    """What is kept of a piece."""

    tokens: int
    losses: float  # their sum
    hits: int
    seconds: float
    cache_bytes: int


def _timed(parts: Iterator[ReadChunk]) -> Iterator[ChunkLosses]:
    """Each piece with the time that it took."""
    began = time.perf_counter()
    for each in parts:
        losses, hits = float(each.losses.double().sum()), int(each.hits.sum())  # a device is waited for here
        now = time.perf_counter()
        yield ChunkLosses(each.losses.numel(), losses, hits, now - began, each.cache_bytes)
        began = now


def _stretches(parts: Sequence[ChunkLosses]) -> Iterator[StreamSection]:
    """Whole pieces together, as many in each stretch."""
    stop = 1
    for first, last in pairwise(edges(len(parts))):
        own = parts[first:last]
        tokens = sum(each.tokens for each in own)
        stop += tokens
        loss, accuracy = sum(each.losses for each in own) / tokens, sum(each.hits for each in own) / tokens
        took = 1000 * sum(each.seconds for each in own) / tokens
        yield StreamSection(stop, loss, accuracy, took, own[-1].cache_bytes)


def _most_held() -> int:
    """Of memory since the process began; the system counts it in kilobytes, but for Apple's."""
    if sys.platform == "win32":
        return 0
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
