"""Blockwise causal attention: a query sees its own half block and the one before it.

    h = block / 2
    [(i//h - 1) h, i+1):   q_at = i, k_at = j

Source: Sun et al. 2022, arXiv:2212.10554, sec. 3.3 (inference only); sunyt32/torchscale, multihead_attention.py.

A query sees between h + 1 and 2h keys; a plain window of the same size loses less (kexue.fm/9431).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ropewalk.methods.reach.reach import Reach, Span, after, itself
from ropewalk.methods.record import EVEN


@dataclass(frozen=True, kw_only=True)
class Blockwise(Reach):
    name = "blockwise"
    block: Annotated[int, EVEN, "most keys of a query; half of it is the step"]

    def spans(self) -> tuple[Span, ...]:
        half = self.block // 2
        return (Span(start=lambda i: (i // half - 1) * half, stop=after, q_at=itself, k_at=itself),)
