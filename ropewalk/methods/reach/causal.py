"""Causal attention: every key up to the query itself, at its position.

    [0, i+1):   q_at = i, k_at = j

Source: Vaswani et al. 2017, arXiv:1706.03762, sec. 3.2.3.
"""

from __future__ import annotations

from dataclasses import dataclass

from ropewalk.methods.reach.reach import Reach, Span, after, always, itself


@dataclass(frozen=True, kw_only=True)
class Causal(Reach):
    name = "causal"

    def spans(self) -> tuple[Span, ...]:
        return (Span(start=always(0), stop=after, q_at=itself, k_at=itself),)
