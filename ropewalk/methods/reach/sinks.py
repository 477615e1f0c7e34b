"""Attention sinks: the last W keys and the first few, numbered as if there were none between them.

    [i-W+1, i+1):     q_at = i,                    k_at = j
    [0, n_sink):      q_at = min(i, n_sink+W-1),   k_at = j

Source: Xiao et al. 2023 (StreamingLLM), arXiv:2309.17453, sec. 3.2; mit-han-lab/streaming-llm, kv_cache.py.

The authors' cache of n_sink + recent keys plus the current one is W = recent + 1. Fluency lasts for any length of text;
content that left the window is forgotten.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ropewalk.methods.facts import Facts
from ropewalk.methods.reach.reach import Reach, Span, always, before, itself, last, require_trained
from ropewalk.methods.record import AT_LEAST_ONE


@dataclass(frozen=True, kw_only=True)
class Sinks(Reach):
    name = "sinks"
    window: Annotated[int, AT_LEAST_ONE, "visible recent keys, including the query's"]
    n_sink: Annotated[int, AT_LEAST_ONE, "first keys that stay visible"] = 4

    def check_against(self, facts: Facts) -> None:
        require_trained("n_sink + window", self.n_sink + self.window, facts, largest=facts.trained_len)

    def spans(self) -> tuple[Span, ...]:
        capacity = self.n_sink + self.window
        near = last(self.window)
        sinks = Span(
            start=always(0),
            stop=lambda i: before(self.window)(i).clamp(max=self.n_sink),
            q_at=lambda i: i.clamp(max=capacity - 1),
            k_at=itself,
        )
        return near, sinks
