"""Which keys some tokens of a text attend to: those with most weight, over the heads of the later layers."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ropewalk.attention.scoped import scoped
from ropewalk.hf.attach.attention import CapturedLayer
from ropewalk.hf.runtime.layer import LISTENER, ExtendedLayer
from ropewalk.hf.use.long_text import head_of
from ropewalk.measure.material.subject import Subject
from ropewalk.measure.metrics.losses import token_losses

QUERIES, KEYS = 24, 8  # tokens that are asked, and keys of each
LEAST_LETTERS = 4  # of a token that says something to a reader


def queries(words: Sequence[str]) -> list[int]:
    """Tokens at equal steps through a text: at each step the next one that reads as a word."""
    count = len(words)
    starts = [(step + 1) * count // (QUERIES + 1) for step in range(QUERIES)]
    ends = [*starts[1:], count]
    return sorted(
        {
            next((place for place in range(start, end) if _is_word(words[place])), start)
            for start, end in zip(starts, ends, strict=True)
        }
    )


def _is_word(text: str) -> bool:
    return len(text.strip()) >= LEAST_LETTERS and text.strip().isalpha()


class ReadText(NamedTuple):
    """Of a text the loss of every token but the first, and of each asked row its keys with most weight."""

    losses_n: Tensor
    keys: list[list[float]]  # as place, weight, place, weight ...; the heaviest first


def read_text(
    subject: Subject, ids_1n: Tensor, rows: Sequence[int], told: Callable[[int], None] = lambda count: None
) -> ReadText:
    """Read a text once, under the extension that the model is under, by our attention; `told` hears how far it is."""
    taken = TakenRows(rows, subject.facts.layers // 2, _calls_of_the_head(subject, ids_1n), told)
    with scoped(LISTENER, taken):
        losses = token_losses(subject.model, ids_1n.to(subject.device)).losses_bn[0]
    return ReadText(losses.double().cpu(), taken.heaviest())


class TakenRows:
    """Listens to a reading in chunks: the keys of the later layers, and the queries of the asked rows."""

    def __init__(self, rows: Sequence[int], first: int, skipped: Counter[int], told: Callable[[int], None]) -> None:
        self._rows, self._first, self._skipped, self._told = rows, first, skipped.copy(), told
        self._layers: dict[int, ExtendedLayer] = {}
        self._keys: defaultdict[int, list[Tensor]] = defaultdict(list)
        self._lengths: Counter[int] = Counter()
        self._asked: dict[tuple[int, int], tuple[Tensor, Tensor | None]] = {}

    def __call__(self, layer: ExtendedLayer, q_bhid: Tensor, k_bgjd: Tensor, mask: Tensor | None) -> None:
        """A chunk in a layer: its queries and keys, and what the layer adds to its logits itself."""
        depth = layer.depth
        if self._skipped[depth] > 0:
            self._skipped[depth] -= 1
            return
        before, count = self._lengths[depth], q_bhid.shape[2]
        self._lengths[depth] += count
        self._told(min(self._lengths.values()))
        if depth < self._first:
            return
        self._layers[depth] = layer
        self._keys[depth].append(k_bgjd[:, :, -count:].cpu())
        for row in self._rows:
            if before <= row < before + count:
                at = slice(row - before, row - before + 1)
                self._asked[depth, row] = q_bhid[:, :, at].cpu(), None if mask is None else mask[:, :, at].cpu()

    def heaviest(self) -> list[list[float]]:
        """Of each asked row its keys with most weight, over all heads of the later layers."""
        keys = {depth: torch.cat(parts, 2) for depth, parts in self._keys.items()}
        return [
            _heaviest(torch.stack([self._weights(depth, row, keys[depth]) for depth in keys])) for row in self._rows
        ]

    def _weights(self, depth: int, row: int, k_bgjd: Tensor) -> Tensor:
        """The mean over heads, of one row in one layer."""
        q_bhid, mask = self._asked[depth, row]
        every = (-1, -1, row + 1, -1)  # the row of a whole text, without the memory of one
        mask = None if mask is None else mask.expand(every)
        captured = CapturedLayer(self._layers[depth], q_bhid.expand(every), k_bgjd[:, :, : row + 1], mask)
        return captured.weights(row)[0].double().mean(0)


def _calls_of_the_head(subject: Subject, ids_1n: Tensor) -> Counter[int]:
    """How often each layer is called before a text is read: the output head is tried on its first tokens."""
    calls: Counter[int] = Counter()
    with scoped(LISTENER, lambda layer, *_: calls.update([layer.depth])):
        head_of(subject.model, ids_1n.to(subject.device))
    return calls


def _heaviest(weights_lj: Tensor) -> list[float]:
    weights_j = weights_lj.mean(0)
    top = weights_j.topk(min(KEYS, len(weights_j)))
    pairs = zip(top.indices.tolist(), top.values.tolist(), strict=True)
    return [number for place, weight in pairs for number in (place, round(weight, 4))]
