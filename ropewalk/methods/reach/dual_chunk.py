"""Dual chunk attention: keys are numbered within chunks; distances are true in the query's chunk and just before.

    s = chunk - local
    same chunk       [i//s s, i+1):                q_at = i mod s,                  k_at = j mod s
    previous chunk   [(i//s - 1) s, i//s s):       q_at = min(i mod s + s, chunk),  k_at = j mod s
    all before       [0, (i//s - 1) s):            q_at = chunk,                    k_at = j mod s

Source: An et al. 2024, arXiv:2402.17463, sec. 3; HKUNLP/ChunkLlama, chunkllama_attn_replace.py.

Deviation: for the chunks before the previous one the released code puts queries at min(2s - 1, chunk). It equals
chunk where local is below half of it, and is less otherwise; here, as in the paper, it does not depend on local.

The code's chunk is 3/4 of the trained length and local 1/8; the paper's formula has the trained length less 1 for
chunk. The released code also scales the logits by a growing temperature that its README disowns; it is left out here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ropewalk.errors import InvalidValue
from ropewalk.methods.facts import Facts
from ropewalk.methods.reach.reach import Reach, Span, after, always, require_trained
from ropewalk.methods.record import AT_LEAST_ONE


@dataclass(frozen=True, kw_only=True)
class DualChunk(Reach):
    name = "dual_chunk"
    chunk: Annotated[int, AT_LEAST_ONE, "c: the query's position for far chunks, the largest effective distance"]
    local: Annotated[int, AT_LEAST_ONE, "w: neighbours that keep their true distance across the edge of a chunk"]

    def check(self) -> None:
        if self.local >= self.chunk:
            raise InvalidValue("local", f"below chunk ({self.chunk})", self.local)

    def check_against(self, facts: Facts) -> None:
        require_trained("chunk", self.chunk, facts, largest=facts.trained_len - 1)

    def spans(self) -> tuple[Span, ...]:
        size = self.chunk - self.local
        same = Span(start=lambda i: i // size * size, stop=after, q_at=lambda i: i % size, k_at=lambda j: j % size)
        previous = Span(
            start=lambda i: (i // size - 1) * size,
            stop=lambda i: i // size * size,
            q_at=lambda i: (i % size + size).clamp(max=self.chunk),
            k_at=lambda j: j % size,
        )
        before = Span(
            start=always(0),
            stop=lambda i: (i // size - 1) * size,
            q_at=always(self.chunk),
            k_at=lambda j: j % size,
        )
        return same, previous, before
