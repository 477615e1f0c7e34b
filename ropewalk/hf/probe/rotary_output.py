"""What a rotary module returns: cos and sin, or one complex number for each pair.

Legend: b batch, n token, d rotating dimension or pair.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

UNIT_RTOL = 2e-2  # of cos^2 + sin^2: the error of bfloat16
RotaryOutput = tuple[Tensor, Tensor] | Tensor


def is_rotation(output: Any) -> bool:
    """Whether a module returned a rotation."""
    if isinstance(output, Tensor):
        return output.is_complex()
    return isinstance(output, tuple) and len(output) == 2 and not any(part.is_complex() for part in output)


def is_rotary_output(output: Any) -> bool:
    """Whether an output of any module is a rotation by its numbers: cos and sin of one size, complex ones alike."""
    parts = (output.real, output.imag) if isinstance(output, Tensor) and output.is_complex() else output
    if not isinstance(parts, tuple) or len(parts) != 2 or not all(isinstance(part, Tensor) for part in parts):
        return False
    cos, sin = parts
    if cos.shape != sin.shape or cos.dim() < 2 or not (cos.is_floating_point() and sin.is_floating_point()):
        return False
    size = (cos.float().square() + sin.float().square()).flatten()
    return bool(sin.any()) and bool(torch.isclose(size, size[:1], rtol=UNIT_RTOL).all())


def fill_output(output: RotaryOutput, cos: float, sin: float, dtype: torch.dtype | None = None) -> RotaryOutput:
    """The same cos and sin for every token and pair; `dtype` is that of real numbers."""
    if isinstance(output, Tensor):
        return torch.full_like(output, complex(cos, sin))
    return torch.full_like(output[0], cos, dtype=dtype), torch.full_like(output[1], sin, dtype=dtype)


def mark_output(output: RotaryOutput, turned: RotaryOutput, mark: float) -> RotaryOutput:
    """No rotation, and `mark` as the sine of what `turned` rotates."""
    sin = cos_and_sin(turned)[1]
    sin = torch.where(sin != 0, mark, 0.0).to(sin.dtype)
    if isinstance(output, Tensor):
        return torch.complex(torch.ones_like(sin), sin).to(output.dtype)
    return torch.ones_like(output[0]), sin.to(output[1].dtype)


def cos_and_sin(output: RotaryOutput) -> tuple[Tensor, Tensor]:
    """The cos and sin of an output."""
    return (output.real, output.imag) if isinstance(output, Tensor) else output
