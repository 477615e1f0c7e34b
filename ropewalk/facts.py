"""What the model brings: the numbers that no method may choose, under the only names they have here."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

from ropewalk.errors import InvalidValue
from ropewalk.record import ABOVE_ONE, AT_LEAST_ONE, EVEN, POSITIVE, Checked

# Among weights, what the model itself has learned: the logit of each head's sink.
MODEL, SINKS = "model", "sinks"


@dataclass(frozen=True, kw_only=True)
class Facts(Checked):
    """A trained model, as far as its positions go."""

    trained_len: Annotated[int, AT_LEAST_ONE, "the length of the texts it was trained on"]
    head_dim: Annotated[int, EVEN, "size of one head's query"]
    base: Annotated[float, ABOVE_ONE, "base of its rotary frequencies"] = 10_000.0
    rotary_dim: Annotated[int | None, EVEN, "dimensions that rotate, the head's first; nothing: all"] = None
    interleaved: Annotated[bool, "a pair is two neighbours; otherwise its halves lie half a rotary size apart"] = False
    heads: Annotated[int, AT_LEAST_ONE, "query heads"] = 1
    kv_heads: Annotated[int | None, AT_LEAST_ONE, "key and value heads; nothing: as many as query heads"] = None
    layers: Annotated[int, AT_LEAST_ONE, "attention layers"] = 1
    softcap: Annotated[float | None, POSITIVE, "what no logit exceeds; nothing: no cap"] = None
    sinks: Annotated[bool, "each head has a learned logit in its softmax, a sink that carries no value"] = False

    def check(self) -> None:
        if self.rotary_dim is not None and self.rotary_dim > self.head_dim:
            raise InvalidValue("rotary_dim", f"at most head_dim ({self.head_dim})", self.rotary_dim)
        if self.kv_heads is not None and self.heads % self.kv_heads:
            raise InvalidValue("kv_heads", f"a divisor of heads ({self.heads})", self.kv_heads)

    @property
    def rotating(self) -> int:
        """d in the papers' formulas: how many dimensions rotate."""
        return self.head_dim if self.rotary_dim is None else self.rotary_dim

    @property
    def groups(self) -> int:
        """How many key heads there are."""
        return self.heads if self.kv_heads is None else self.kv_heads

    def stretch(self, length: int, steps: int | None) -> float:
        """The factor that a row of this length needs: 1 within the trained length, then rounded up to one of `steps`
        values per doubling, so that a long text needs few tables. Without steps it is not rounded."""
        if length <= self.trained_len:
            return 1.0
        if steps is None:
            return length / self.trained_len
        return self._step_factor(self._step(length, steps), steps)

    def stage_starts(self, length: int, steps: int | None) -> tuple[int, ...]:
        """The row lengths, up to `length`, at which `stretch` takes a new value."""
        if length <= self.trained_len:
            return (1,)
        if steps is None:
            return (1, *range(self.trained_len + 1, length + 1))
        ends = (self._step_end(step, steps) for step in range(self._step(length, steps)))
        return tuple(dict.fromkeys([1, *(end + 1 for end in ends)]))

    def _step(self, length: int, steps: int) -> int:
        step = max(0, math.ceil(steps * math.log2(length / self.trained_len)) - 1)
        # The logarithm may round to either side of a whole step; the whole-number ends decide.
        while self._step_end(step, steps) < length:
            step += 1
        return step

    def _step_end(self, step: int, steps: int) -> int:
        return math.floor(self.trained_len * self._step_factor(step, steps))

    @staticmethod
    def _step_factor(step: int, steps: int) -> float:
        return float(2.0 ** (step / steps))
