"""Self-Extend: near keys at their positions, far keys in groups of G that share one position.

    [i-w+1, i+1):   q_at = i,                  k_at = j
    [0, i-w+1):     q_at = i//G + w - w//G,    k_at = j//G

Source: Jin et al. 2024, arXiv:2401.01325, alg. 1; datamllab/LongLM, self_extend_patch/Llama.py.

Deviation: the authors' prefill shifts by w - w/G with a fraction, their flash decoding by w - w//G as in the paper; the
two disagree where G does not divide w. Here it is w - w//G. Rule of thumb: w + (n-w)/G <= L/2 to 2L/3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ropewalk.methods.facts import Facts
from ropewalk.methods.reach.reach import Reach, Span, always, before, last, require_trained
from ropewalk.methods.record import AT_LEAST_ONE


@dataclass(frozen=True, kw_only=True)
class SelfExtend(Reach):
    name = "self_extend"
    window: Annotated[int, AT_LEAST_ONE, "w: keys nearer than this keep their positions"]
    group: Annotated[int, AT_LEAST_ONE, "G: how many far tokens share a position"]

    def check_against(self, facts: Facts) -> None:
        require_trained("window", self.window, facts, largest=facts.trained_len - 1)

    def spans(self) -> tuple[Span, ...]:
        shift = self.window - self.window // self.group
        near = last(self.window)
        far = Span(
            start=always(0),
            stop=before(self.window),
            q_at=lambda i: i // self.group + shift,
            k_at=lambda j: j // self.group,
        )
        return near, far
