"""Leaky ReRoPE: distances grow by 1 up to w, and by 1/leak beyond it.

    [i-w+1, i+1):   q_at = i,                 k_at = j
    [0, i-w+1):     q_at = w + (i-w)/leak,    k_at = j/leak

Source: Su 2023, kexue.fm/9708; bojone/rerope, leaky_rerope_patch.py (w = 512, leak = 16).

Keep w + (n-w)/leak at or below half the trained length for a text of n tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ropewalk.methods.facts import Facts
from ropewalk.methods.reach.reach import Reach, Span, always, before, last, require_trained
from ropewalk.methods.record import AT_LEAST_ONE


@dataclass(frozen=True, kw_only=True)
class LeakyReRoPE(Reach):
    name = "leaky_rerope"
    window: Annotated[int, AT_LEAST_ONE, "w: the distance from which distances grow more slowly"]
    leak: Annotated[float, AT_LEAST_ONE, "tokens per step of distance beyond the window (k)"] = 16.0

    def check_against(self, facts: Facts) -> None:
        require_trained("window", self.window, facts, largest=facts.trained_len - 1)

    def spans(self) -> tuple[Span, ...]:
        near = last(self.window)
        far = Span(
            start=always(0),
            stop=before(self.window),
            q_at=lambda i: self.window + (i.double() - self.window) / self.leak,
            k_at=lambda j: j.double() / self.leak,
        )
        return near, far
