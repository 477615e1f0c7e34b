"""Attention within chunks: a query sees its own chunk of the text and no other.

    [i // c * c, i+1):   q_at = i, k_at = j

Source: Meta 2025, Llama 4 (its layers that rotate); huggingface/transformers, masking_utils.py, chunked_overlay.

The first token of a chunk sees only itself, so other layers have to carry the text across chunks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ropewalk.methods.reach.reach import Reach, Span, after, itself
from ropewalk.methods.record import AT_LEAST_ONE


@dataclass(frozen=True, kw_only=True)
class Chunks(Reach):
    name = "chunks"
    chunk: Annotated[int, AT_LEAST_ONE, "tokens of a chunk"]

    def spans(self) -> tuple[Span, ...]:
        return (Span(start=lambda i: i // self.chunk * self.chunk, stop=after, q_at=itself, k_at=itself),)
