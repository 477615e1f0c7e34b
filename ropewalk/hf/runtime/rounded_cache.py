"""A cache whose keys and values are rounded as a quantised cache rounds them: what that costs, not what it saves.

    int8, int4   each group of 32 numbers of a token's head in 255 or 15 equal steps from its least to its largest
    fp8          four bits of exponent and three of fraction (e4m3); what is beyond 448 becomes 448

The groups are those of llama.cpp's q8_0 and q4_1, and fp8 is vLLM's without calibrated scales. Every key and value is
rounded once, before any query reads it, as both engines do; transformers' QuantizedCache leaves the newest as they are.
Keys are rounded as they are cached: rotated by the model's own tables, unrotated under our attention.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch
from torch import Tensor
from transformers import DynamicCache

from ropewalk.errors import InvalidValue

Rounding = Literal["int8", "int4", "fp8"]
GROUP = 32  # numbers
FP8 = torch.float8_e4m3fn
LEAST_STEP = float(torch.finfo(torch.float32).tiny)  # of a group whose numbers are all alike


class RoundedCache(DynamicCache):
    """What `generate` makes by default, for rounded keys and values, which it holds in the model's own precision."""

    def __init__(self, rounding: Rounding, config: Any = None) -> None:
        if rounding not in get_args(Rounding):
            raise InvalidValue("rounding", f"one of {', '.join(get_args(Rounding))}", rounding)
        super().__init__(config=config)
        self.rounding = rounding

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """The new keys and values, rounded, with those before them."""
        return super().update(rounded(key_states, self.rounding), rounded(value_states, self.rounding), *args, **kwargs)


def rounded(x_bgnd: Tensor, rounding: Rounding) -> Tensor:
    """Keys or values as they come back from a quantised cache."""
    if rounding == "fp8":
        most = torch.finfo(FP8).max
        return x_bgnd.clamp(-most, most).to(FP8).to(x_bgnd.dtype)  # of which older versions of torch make NaN
    size = x_bgnd.shape[-1]
    group = next(count for count in range(min(GROUP, size), 0, -1) if size % count == 0)
    groups = x_bgnd.float().unflatten(-1, (-1, group))  # type: ignore[no-untyped-call]
    low, high = groups.aminmax(dim=-1, keepdim=True)
    step = ((high - low) / (2 ** int(rounding.removeprefix("int")) - 1)).clamp(min=LEAST_STEP)
    whole: Tensor = ((groups - low) / step).round() * step + low
    return whole.flatten(-2).to(x_bgnd.dtype)
