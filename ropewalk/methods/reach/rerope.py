"""ReRoPE: effective distances stop at w, so that none exceeds those of training.

    [i-w+1, i+1):   q_at = i, k_at = j
    [0, i-w+1):     q_at = w, k_at = 0

Source: Su 2023, kexue.fm/9708; bojone/rerope, rerope_patch.py (w = 512; its README's table has w = 1024 for L = 4096).

w must be below the trained length: w = L is a distance that was never trained (8 % accuracy against 48 %). The
authors' code also multiplies the queries by log-n; say rerope+log_n for that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ropewalk.methods.facts import Facts
from ropewalk.methods.reach.reach import Reach, Span, always, before, last, require_trained
from ropewalk.methods.record import AT_LEAST_ONE


@dataclass(frozen=True, kw_only=True)
class ReRoPE(Reach):
    name = "rerope"
    window: Annotated[int, AT_LEAST_ONE, "w: the largest effective distance"]

    def check_against(self, facts: Facts) -> None:
        require_trained("window", self.window, facts, largest=facts.trained_len - 1)

    def spans(self) -> tuple[Span, ...]:
        near = last(self.window)
        far = Span(start=always(0), stop=before(self.window), q_at=always(self.window), k_at=always(0))
        return near, far
