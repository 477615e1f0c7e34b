"""Sliding window: the last W keys, including the query's.

    [i-W+1, i+1):   q_at = i, k_at = j

Source: Beltagy et al. 2020, arXiv:2004.05150, sec. 3.1; Mistral 7B, arXiv:2310.06825, sec. 2.

W counts visible keys, as transformers and xformers do; flash-attn's window_size (W, 0) and Mistral's first reference
code have one key more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ropewalk.methods.reach.reach import Reach, Span, last
from ropewalk.methods.record import AT_LEAST_ONE


@dataclass(frozen=True, kw_only=True)
class Window(Reach):
    name = "window"
    window: Annotated[int, AT_LEAST_ONE, "visible keys, including the query's"]

    def spans(self) -> tuple[Span, ...]:
        return (last(self.window),)
