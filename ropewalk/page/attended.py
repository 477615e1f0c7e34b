"""Which keys some tokens of a text attend to: those with most weight, over the heads of the later layers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ropewalk.extension.extension import Extension
from ropewalk.hf.attach.attention import CapturedLayer, capture_layers
from ropewalk.measure.material.subject import Subject

QUERIES, KEYS = 24, 8  # tokens that are asked, and keys of each
LETTERS = 4  # of a token that says something to a reader


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
    return len(text.strip()) >= LETTERS and text.strip().isalpha()


def attended(subject: Subject, extension: Extension, ids_bn: Tensor, rows: Sequence[int]) -> list[list[float]]:
    """Of each row its keys with most weight, as place, weight, place, weight ...; the heaviest first."""
    first = subject.facts.layers // 2

    def of_layer(layer: CapturedLayer) -> list[Tensor] | None:
        if layer.layer.depth < first:
            return None
        return [layer.weights(row)[0].double().mean(0) for row in rows]

    with subject.under(extension, mode="attention"):
        layers = [weights for weights in capture_layers(subject.model, ids_bn.to(subject.device), of_layer) if weights]
    return [_heaviest(torch.stack(of_row).mean(0)) for of_row in zip(*layers, strict=True)]


def _heaviest(weights_j: Tensor) -> list[float]:
    top = weights_j.topk(min(KEYS, len(weights_j)))
    pairs = zip(top.indices.tolist(), top.values.tolist(), strict=True)
    return [number for place, weight in pairs for number in (place, round(weight, 4))]
