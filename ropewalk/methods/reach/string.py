"""STRING: keys from distance S on move S - W nearer, over distances that training met too seldom.

    [i-S+1, i+1):   q_at = i,           k_at = j
    [0, i-S+1):     q_at = i - S + W,   k_at = j

Source: An et al. 2024, arXiv:2410.18745, sec. 4; HKUNLP/STRING, string_for_llama.py (S = 0.33 L, W = 128).

Made for texts within the trained length L. A text may be L + S - W tokens long before a distance exceeds training; a
schedule beside it takes it further (string+yarn).

Deviation: the authors' prefill counts the key at distance S twice, at S and at W; their decoding counts it once, at W,
as here. Their code also has YaRN's temperature for a factor of 2: say string+yarn_temperature:factor=2 for that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ropewalk.errors import InvalidValue
from ropewalk.methods.facts import Facts
from ropewalk.methods.reach.reach import Reach, Span, always, before, itself, last, require_trained
from ropewalk.methods.record import AT_LEAST_ONE


@dataclass(frozen=True, kw_only=True)
class String(Reach):
    name = "string"
    shift: Annotated[int, AT_LEAST_ONE, "S: keys nearer than this keep their distance"]
    local: Annotated[int, AT_LEAST_ONE, "W: the effective distance of the first key beyond them"]

    def check(self) -> None:
        if self.local >= self.shift:
            raise InvalidValue("local", f"below shift ({self.shift})", self.local)

    def check_against(self, facts: Facts) -> None:
        require_trained("shift", self.shift, facts, largest=facts.trained_len)

    def spans(self) -> tuple[Span, ...]:
        near = last(self.shift)
        far = Span(
            start=always(0),
            stop=before(self.shift),
            q_at=lambda i: i - self.shift + self.local,
            k_at=itself,
        )
        return near, far
