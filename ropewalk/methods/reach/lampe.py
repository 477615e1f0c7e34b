"""LaMPE: near keys at their positions, most keys on a scale that maps the text to M, the first keys one by one again.

    m(x) = x M // (n-1),  r = ceil((m(t)+1) (n-1) / M) - 1          r: t rounded up to the end of its group

    [i-h+1, i+1):      q_at = i,                             k_at = j
    [i-n+r+1, i-h+1):  q_at = m(i) + h - 1 - m(h),           k_at = m(j)
    [0, i-n+r+1):      q_at = i - s,                         k_at = j
    s = n - r - m(n-1-r) - h + m(h)

Source: Zhang et al. 2025, arXiv:2508.02308, sec. 3; scar-on/LaMPE, llama_cache1.py (h = 512, t = 200, M = 1,536).

Only the last r tokens of a text of n see keys of the third span; for them its first keys are a step apart. No distance
exceeds M + h + r.

Deviation: the authors' prefill counts the keys at the edges of the spans (at distances h and n - r) twice, their
decoding once, as here. Their decoding keeps queries of the second span at m(n-1), as if the text did not grow, and
their m divides in float32. Texts shorter than 2h are left alone there; here everything depends on positions alone.
Their code also has YaRN's temperature for a factor of 2: say lampe+yarn_temperature:factor=2 for that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from torch import Tensor

from ropewalk.errors import DoesNotFit, InvalidValue
from ropewalk.methods.facts import Facts
from ropewalk.methods.reach.reach import Reach, Span, always, before, furthest, itself, last
from ropewalk.methods.record import AT_LEAST_ONE


@dataclass(frozen=True, kw_only=True)
class LaMPE(Reach):
    name = "lampe"
    head: Annotated[int, AT_LEAST_ONE, "h: keys nearer than this keep their positions"]
    tail: Annotated[int, AT_LEAST_ONE, "t: the first keys that the last tokens see one by one, at least"]
    length: Annotated[int, AT_LEAST_ONE, "n: the text's length in tokens"]
    mapped: Annotated[int, AT_LEAST_ONE, "M: the length that the text is mapped to"]

    def check(self) -> None:
        if self.mapped >= self.length - 1:
            raise InvalidValue("mapped", f"below length - 1 ({self.length - 1})", self.mapped)
        if self.head + self._first >= self.length:
            rule = f"below {self.length - self._first}, the text's length less its first keys ({self._first})"
            raise InvalidValue("head", rule, self.head)

    def check_against(self, facts: Facts) -> None:
        longest = int(furthest(self, self.length - 1))
        if longest >= facts.trained_len:
            raise DoesNotFit(
                "mapped",
                f"such that the first key is at most {facts.trained_len - 1} steps away, as in training; {longest} now",
                self.mapped,
                remedy="a smaller mapped or head brings it nearer; or add a schedule such as yarn",
            )

    @property
    def _first(self) -> int:
        """r: how many first keys the text's last token sees one by one."""
        group = self.tail * self.mapped // (self.length - 1)
        return -(-(group + 1) * (self.length - 1) // self.mapped) - 1

    def _on_scale(self, position: Tensor) -> Tensor:
        """m, by whole numbers."""
        return position * self.mapped // (self.length - 1)

    def spans(self) -> tuple[Span, ...]:
        steps, distance = self.length - 1, self.length - self._first
        join = self.head - 1 - self.head * self.mapped // steps
        shift = distance - 1 - (distance - 1) * self.mapped // steps - join
        near = last(self.head)
        middle = Span(
            start=before(distance),
            stop=before(self.head),
            q_at=lambda i: self._on_scale(i) + join,
            k_at=self._on_scale,
        )
        first = Span(start=always(0), stop=before(distance), q_at=lambda i: i - shift, k_at=itself)
        return near, middle, first
