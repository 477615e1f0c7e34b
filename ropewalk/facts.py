"""What the model brings: the numbers that no method may choose, under the only names they have here."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated

from ropewalk.errors import InvalidValue
from ropewalk.record import ABOVE_ONE, AT_LEAST_ONE, EVEN, NOT_NEGATIVE, POSITIVE, Checked

# Among weights, what the model itself has learned: the logit of each head's sink.
MODEL, SINKS = "model", "sinks"


@dataclass(frozen=True, kw_only=True)
class Facts(Checked):
    """A trained model, as far as its positions go."""

    trained_len: Annotated[int, AT_LEAST_ONE, "the length it was trained to, with the schedule it came with"]
    head_dim: Annotated[int, EVEN, "size of one head's query"]
    base: Annotated[float, ABOVE_ONE, "base of its rotary frequencies"] = 10_000.0
    inv_freq: Annotated[
        tuple[float, ...] | None, NOT_NEGATIVE, "its own table, radians per position; nothing: base^(-2i/d)"
    ] = None
    original_len: Annotated[int | None, AT_LEAST_ONE, "trained length before that table; nothing: the same"] = None
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
        if self.inv_freq is not None and len(self.inv_freq) != self.rotating // 2:
            raise InvalidValue("inv_freq", f"one number for each of {self.rotating // 2} pairs", len(self.inv_freq))
        if self.original_len is not None and self.original_len > self.trained_len:
            raise InvalidValue("original_len", f"at most trained_len ({self.trained_len})", self.original_len)

    @property
    def rotating(self) -> int:
        """d in the papers' formulas: how many dimensions rotate."""
        return self.head_dim if self.rotary_dim is None else self.rotary_dim

    @property
    def groups(self) -> int:
        """How many key heads there are."""
        return self.heads if self.kv_heads is None else self.kv_heads

    @property
    def undone(self) -> Facts:
        """The same model without the schedule that it came with. Pairs that stand still are its layout, and stay."""
        still = [theta == 0 for theta in self.inv_freq or ()]
        plain = (self.base ** (-2 * pair / self.rotating) for pair in range(len(still)))
        table = tuple(0.0 if stands else theta for theta, stands in zip(plain, still, strict=True))
        length = self.original_len or self.trained_len
        return replace(self, trained_len=length, original_len=None, inv_freq=table if any(still) else None)

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
