"""Attention sinks: the last W keys and the first few, numbered as if there were none between them.

    [i-W+1, i+1):     q_at = i,                    k_at = j
    [0, n_sink):      q_at = min(i, n_sink+W-1),   k_at = j        or i, where they keep their distance

Source: Xiao et al. 2023 (StreamingLLM), arXiv:2309.17453, sec. 3.2; mit-han-lab/streaming-llm, kv_cache.py.

Where sinks keep their distance (renumber=false) it is the mask of DuoAttention's streaming heads, Xiao et al. 2024,
arXiv:2410.10819, sec. 2.2; mit-han-lab/duo-attention, streaming_attn.py.

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
    renumber: Annotated[bool, "keys between sinks and window are not counted; otherwise sinks keep their distance"] = (
        True
    )

    def check_against(self, facts: Facts) -> None:
        if not self.renumber:
            return require_trained("window", self.window, facts, largest=facts.trained_len)
        require_trained("n_sink + window", self.n_sink + self.window, facts, largest=facts.trained_len)

    def spans(self) -> tuple[Span, ...]:
        capacity = self.n_sink + self.window
        near = last(self.window)
        sinks = Span(
            start=always(0),
            stop=lambda i: before(self.window)(i).clamp(max=self.n_sink),
            q_at=(lambda i: i.clamp(max=capacity - 1)) if self.renumber else itself,
            k_at=itself,
        )
        return near, sinks
