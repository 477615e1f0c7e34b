"""ReRoPE by parts: beyond w fast pairs stop, as under ReRoPE, and slow pairs go on slowly, as under leaky ReRoPE.

    [i-w+1, i+1):   distance = i - j                              of every pair
    [0, i-w+1):     distance = w + share_p (i - j - w)            of pair p
    share_p       = (1 - keep_p) / leak
    keep_p        = clamp((turns_p - low_turns) / (high_turns - low_turns), 0, 1)
    turns_p       = how often pair p turns in the trained length

Source: ours, 2026: the parts of NTK by parts (arXiv:2309.00071, sec. 3.2) applied to the far keys of leaky ReRoPE (Su
2023, kexue.fm/9708).

A pair that turns often tells near keys apart and says nothing of far ones. A pair that turns less than once orders
them. For biases a far key is at the distance of the slowest pairs, w + (i - j - w)/leak.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from torch import Tensor

from ropewalk.errors import InvalidValue
from ropewalk.methods.facts import Facts
from ropewalk.methods.reach.reach import PairPlaces, Reach, Span, always, before, last, require_trained
from ropewalk.methods.record import AT_LEAST_ONE, POSITIVE


@dataclass(frozen=True, kw_only=True)
class ReRoPEByParts(Reach):
    name = "rerope_by_parts"
    window: Annotated[int, AT_LEAST_ONE, "w: the distance from which pairs stop or go on slowly"]
    leak: Annotated[float, AT_LEAST_ONE, "tokens per step of distance of the slowest pairs beyond the window"] = 16.0
    low_turns: Annotated[float, POSITIVE, "pairs with fewer turns go on at 1/leak"] = 0.5
    high_turns: Annotated[float, POSITIVE, "pairs with more turns stop"] = 2.0

    def check(self) -> None:
        if self.low_turns >= self.high_turns:
            raise InvalidValue("low_turns", f"below high_turns ({self.high_turns:g})", self.low_turns)

    def check_against(self, facts: Facts) -> None:
        require_trained("window", self.window, facts, largest=facts.trained_len - 1)

    def spans(self) -> tuple[Span, ...]:
        near = last(self.window)
        far = Span(
            start=always(0),
            stop=before(self.window),
            q_at=lambda i: self.window + (i.double() - self.window) / self.leak,
            k_at=lambda j: j.double() / self.leak,
            pairs=PairPlaces(
                q_at=lambda i, turns: self.window + (i.double() - self.window) * self._share(turns),
                k_at=lambda j, turns: j.double() * self._share(turns),
            ),
        )
        return near, far

    def _share(self, turns: Tensor) -> Tensor:
        """Steps of distance per token beyond the window, for each pair."""
        keep = ((turns - self.low_turns) / (self.high_turns - self.low_turns)).clamp(0, 1)
        return (1 - keep) / self.leak
