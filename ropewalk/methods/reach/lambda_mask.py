"""The lambda-shaped mask: the last W keys, and the first few at one distance within the trained length.

    [i-W+1, i+1):     q_at = i,         k_at = j
    [0, n_sink):      q_at = ceiling,   k_at = 0

Source: Han et al. 2023 (LM-Infinite), arXiv:2308.16137, sec. 4; Glaciohound/LM-Infinite, models/lambda_attention.py.

All sinks have one effective distance. The authors' drop-in values are W = trained length, n_sink = 10, ceiling = W.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ropewalk.methods.facts import Facts
from ropewalk.methods.reach.reach import Reach, Span, always, before, last, require_trained
from ropewalk.methods.record import AT_LEAST_ONE


@dataclass(frozen=True, kw_only=True)
class LambdaMask(Reach):
    name = "lambda_mask"
    window: Annotated[int, AT_LEAST_ONE, "visible recent keys, including the query's"]
    n_sink: Annotated[int, AT_LEAST_ONE, "first keys that stay visible"] = 10
    ceiling: Annotated[int | None, AT_LEAST_ONE, "effective distance of the sinks; nothing: the window"] = None

    def check_against(self, facts: Facts) -> None:
        require_trained("window", self.window, facts, largest=facts.trained_len)
        require_trained("ceiling", self._ceiling, facts, largest=facts.trained_len)

    @property
    def _ceiling(self) -> int:
        return self.window if self.ceiling is None else self.ceiling

    def spans(self) -> tuple[Span, ...]:
        near = last(self.window)
        sinks = Span(
            start=always(0),
            stop=lambda i: before(self.window)(i).clamp(max=self.n_sink),
            q_at=always(self._ceiling),
            k_at=always(0),
        )
        return near, sinks
