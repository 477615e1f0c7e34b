"""The facts of a model: numbers that no method may choose."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated

from ropewalk.errors import DoesNotFit, InvalidValue
from ropewalk.methods.record import ABOVE_ONE, AT_LEAST_ONE, EVEN, NOT_NEGATIVE, POSITIVE, Checked

# The key of a model's own learned numbers among weights: one logit per head, the sink; and one factor for each
# dimension of a rotated query, from norms that follow the rotation.
MODEL, SINKS, AFTER_ROTATION = "model", "sinks", "after_rotation"


@dataclass(frozen=True, kw_only=True)
class Facts(Checked):
    """The facts of a trained model that methods need.

        facts = rw.Facts(trained_len=4096, head_dim=128, heads=32, kv_heads=8, layers=32)

    Every field has its rule and its meaning in its annotation; `ropewalk inspect` measures them on a model.
    """

    trained_len: Annotated[int, AT_LEAST_ONE, "tokens that training covered, with the checkpoint's schedule"]
    head_dim: Annotated[int, EVEN, "dimensions of one head's query"]
    base: Annotated[float, ABOVE_ONE, "base of its rotary frequencies"] = 10_000.0
    inv_freq: Annotated[
        tuple[float, ...] | None, NOT_NEGATIVE, "its own table, radians per position; nothing: base^(-2i/d)"
    ] = None
    original_len: Annotated[int | None, AT_LEAST_ONE, "trained length before that table; nothing: the same"] = None
    rotary_dim: Annotated[int | None, EVEN, "rotating dimensions, the first of a head; nothing: all"] = None
    interleaved: Annotated[bool, "pairs are neighbours; otherwise they are half the rotating dimensions apart"] = False
    heads: Annotated[int, AT_LEAST_ONE, "query heads"] = 1
    kv_heads: Annotated[int | None, AT_LEAST_ONE, "key and value heads; nothing: as many as query heads"] = None
    layers: Annotated[int, AT_LEAST_ONE, "attention layers"] = 1
    softcap: Annotated[float | None, POSITIVE, "cap of the logits; nothing: no cap"] = None
    sinks: Annotated[bool, "every head has a learned logit in its softmax, a sink without a value"] = False
    weighted: Annotated[bool, "rotated queries have a learned factor for each dimension"] = False

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
        """How many dimensions rotate: d in the papers' formulas."""
        return self.head_dim if self.rotary_dim is None else self.rotary_dim

    @property
    def groups(self) -> int:
        """How many key heads the model has."""
        return self.heads if self.kv_heads is None else self.kv_heads

    @property
    def unscaled(self) -> Facts:
        """The same model without the schedule that it came with. Pairs that never rotate are its layout, and stay."""
        fixed = [theta == 0 for theta in self.inv_freq or ()]
        plain = (self.base ** (-2 * pair / self.rotating) for pair in range(len(fixed)))
        table = tuple(0.0 if is_fixed else theta for theta, is_fixed in zip(plain, fixed, strict=True))
        length = self.original_len or self.trained_len
        return replace(self, trained_len=length, original_len=None, inv_freq=table if any(fixed) else None)

    def require_one_each(self, name: str, what: str, values: tuple[float, ...]) -> None:
        """Refuse a list that does not have one value for each pair of rotating dimensions."""
        pairs = self.rotating // 2
        if len(values) != pairs:
            raise DoesNotFit(name, f"one {what} for each of the {pairs} pairs", len(values))

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
        # The logarithm may round to either side of a whole step; the integer ends decide.
        while self._step_end(step, steps) < length:
            step += 1
        return step

    def _step_end(self, step: int, steps: int) -> int:
        return math.floor(self.trained_len * self._step_factor(step, steps))

    @staticmethod
    def _step_factor(step: int, steps: int) -> float:
        return float(2.0 ** (step / steps))
