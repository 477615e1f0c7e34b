"""Which way computes a text, and why: a choice that can be read, never a silent fallback.

    no bias     flash, on cuda then flex
    a bias      bias_diagonals, on cuda flex
    otherwise   dense, which carries everything

Each way says what it cannot carry; the first that carries the case computes it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

from ropewalk.attention.backends import bias_diagonals, dense, flash, flex
from ropewalk.attention.backends.bias_pruning import NEGLIGIBLE
from ropewalk.attention.backends.triton import launch
from ropewalk.attention.problem import Problem
from ropewalk.attention.torch_kernels import verified
from ropewalk.errors import DoesNotFit

# What exp bears, with room for the vectors themselves; bfloat16 has the range of float32.
EXPONENTS = {torch.float16: 7, torch.bfloat16: 80, torch.float32: 80, torch.float64: 700}


class Choice(NamedTuple):
    """A backend, the reason, and whether it has to work in float64."""

    backend: str
    why: str
    double: bool = False


class Way(NamedTuple):
    """A backend: why it cannot carry a case (or nothing), and what it does with one that it carries."""

    backend: str
    why_not: Callable[[Problem], str | None]
    why: Callable[[Problem], str]


def choose(case: Problem) -> Choice:
    """The fastest way that carries the extension over this text."""
    growth = max((strand.growth for strand in case.strands), default=0.0)
    if growth > EXPONENTS[torch.float64]:
        raise DoesNotFit("length", "shorter: xpos grows beyond float64 over this text", f"exp({growth:.0f})")
    if growth > EXPONENTS[case.dtype]:
        why = f"the decay spans exp({growth:.0f}), beyond what {str(case.dtype)[6:]} holds"
        return Choice("direct", why, double=True)
    refusals: list[str] = []
    for way in ways(case):
        refusal = way.why_not(case)
        if refusal is None:
            break
        refusals.append(refusal)
    return Choice(way.backend, "; ".join(filter(None, [way.why(case), *refusals])))


def ways(case: Problem) -> list[Way]:
    """Those to be asked, the fastest first; the last carries everything."""
    on_cuda = case.device.type == "cuda"
    if case.extension.biases:
        return [TRITON, FLEX, DIRECT] if on_cuda else [TOEPLITZ, DIRECT]
    return [FLASH, TRITON, FLEX, DIRECT] if on_cuda else [FLASH, DIRECT]


def _why_flash(case: Problem) -> str:
    pieces = [piece for strand in case.strands for piece in strand.pieces]
    pairs = sum(piece.pairs for piece in pieces)
    return f"{len(pieces)} pieces by fused kernels, {pairs:,} pairs of a query and a key{_stand_in(case)}"


def _why_toeplitz(case: Problem) -> str:
    if case.learning:
        far = "its gradient is summed along the diagonals"
    else:
        far = f"far keys that norms certify to weigh below 2^{NEGLIGIBLE[case.dtype]} in all are left out"
    return f"a line of numbers is the mask of the fused kernels ({case.biases}); {far}{_stand_in(case)}"


def _why_flex(case: Problem) -> str:
    calls = f"{len(case.strands)} call{'s' * (len(case.strands) > 1)} of FlexAttention, compiled"
    return f"{calls}, the bias read from a line of numbers ({case.biases})" if case.extension.biases else calls


def _stand_in(case: Problem) -> str:
    missing = verified.why_no_kernel(case.device, case.dtype, case.head_dim)
    return f"; {missing}: a matmul stands in" if missing else ""


FLASH = Way("flash", flash.why_not, _why_flash)
TOEPLITZ = Way("toeplitz", bias_diagonals.why_not, _why_toeplitz)
TRITON = Way(
    "triton", launch.why_not, lambda case: "one kernel over all spans turns, adds biases and scales as it goes"
)
FLEX = Way("flex", flex.why_not, _why_flex)
DIRECT = Way("direct", dense.why_not, lambda case: "")  # its reason is that the others refuse
