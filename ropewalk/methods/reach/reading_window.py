"""A window and the first few keys for tokens that are read, all keys for tokens that the model writes.

    read      [i-W+1, i+1) and [0, n_sink):   q_at = i, k_at = j
    written   [0, i+1):                       q_at = i, k_at = j

Source: Yu et al. 2025 (SWAA), arXiv:2512.10411; yuyijiong/sliding-window-attention-adaptation, README.

The tokens of a prompt are read, its last one too. What follows is written, which `generate` and `rw.stream` say by
themselves; any other call reads, unless it stands in `rw.writing`. Reading takes time in proportion to the length;
the cache keeps all keys. Keys keep their distance, so that beyond the trained length a schedule is needed too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ropewalk.methods.facts import Facts
from ropewalk.methods.reach.causal import Causal
from ropewalk.methods.reach.reach import Reach, Span, always, before, itself, last, require_trained
from ropewalk.methods.record import AT_LEAST_ONE, NOT_NEGATIVE


@dataclass(frozen=True, kw_only=True)
class ReadingWindow(Reach):
    name = "reading_window"
    window: Annotated[int, AT_LEAST_ONE, "recent keys that tokens of the prompt see, including their own"]
    n_sink: Annotated[int, NOT_NEGATIVE, "first keys that they see too"] = 4

    def check_against(self, facts: Facts) -> None:
        require_trained("window", self.window, facts, largest=facts.trained_len)

    def spans(self) -> tuple[Span, ...]:
        first = Span(
            start=always(0),
            stop=lambda i: before(self.window)(i).clamp(max=self.n_sink),
            q_at=itself,
            k_at=itself,
        )
        return last(self.window), first

    @property
    def writing(self) -> Reach:
        return Causal()
