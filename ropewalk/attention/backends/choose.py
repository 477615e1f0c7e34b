"""Which backend computes a problem, and why. `explain` prints the reason; no backend is replaced silently.

`ORDER` lists the backends by device and by whether there is a bias. Each says which problems it does not support.
The first that supports a problem computes it.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import NamedTuple

import torch

from ropewalk.attention.backends.backend import Backend
from ropewalk.attention.backends.bias_diagonals import BIAS_DIAGONALS
from ropewalk.attention.backends.dense import DENSE
from ropewalk.attention.backends.flash import FLASH
from ropewalk.attention.backends.flex import FLEX
from ropewalk.attention.problem import Problem
from ropewalk.errors import DoesNotFit

# The fastest first. `dense` is last: it supports every problem. A bias that all keys of a row's part share counts as
# none: it only weights the part.
ORDER: dict[tuple[str, str], tuple[Backend, ...]] = {
    ("cuda", "no bias"): (FLASH, FLEX, DENSE),
    ("cuda", "a bias"): (FLEX, DENSE),
    ("other devices", "no bias"): (FLASH, DENSE),
    ("other devices", "a bias"): (BIAS_DIAGONALS, DENSE),
}

# The largest exponent that exp takes, with room for the vectors themselves; bfloat16 has the range of float32.
EXPONENTS = {torch.float16: 7, torch.bfloat16: 80, torch.float32: 80, torch.float64: 700}

ALONE: ContextVar[str] = ContextVar("the only backend that may be chosen, as tests ask", default="")


class Choice(NamedTuple):
    """A backend, the reason, and whether it must compute in float64."""

    backend: Backend
    why: str
    double: bool = False


def choose(problem: Problem) -> Choice:
    """The fastest backend that supports the problem."""
    growth = max((segment.growth for segment in problem.segments), default=0.0)
    if growth > EXPONENTS[torch.float64]:
        raise DoesNotFit("length", "shorter: xpos grows beyond float64 over this text", f"exp({growth:.0f})")
    if growth > EXPONENTS[problem.dtype]:
        why = f"the decay spans exp({growth:.0f}), beyond the range of {str(problem.dtype)[6:]}"
        return Choice(DENSE, why, double=True)
    if problem.masked:
        return Choice(DENSE, "the model's layer adds a mask of its own")
    refusals: list[str] = []
    for backend in candidates(problem):
        refusal = backend.why_not(problem)
        if refusal is None:
            break
        refusals.append(refusal)
    if len(refusals) == len(candidates(problem)):  # only where one alone is asked for: `dense` supports all
        raise DoesNotFit.because("backend", "; ".join(refusals) or f"{ALONE.get()} is not for this device")
    return Choice(backend, "; ".join(filter(None, [backend.why(problem), *refusals])))


def candidates(problem: Problem) -> tuple[Backend, ...]:
    """The backends to try, in order."""
    device = "cuda" if problem.device.type == "cuda" else "other devices"
    differs = problem.extension.biases and problem.row_biases is None
    order = ORDER[device, "a bias" if differs else "no bias"]
    return tuple(backend for backend in order if backend.name == ALONE.get()) if ALONE.get() else order


def choices() -> str:
    """The order of all backends as a table."""
    rows = [(*case, ", ".join(backend.name for backend in backends)) for case, backends in ORDER.items()]
    header = ("device", "extension", "backends: the first that supports the problem computes it")
    return "\n".join(f"{device:<15}{bias:<11}{backends}" for device, bias, backends in (header, *rows))
