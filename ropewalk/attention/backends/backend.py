"""What a backend is: its name, the problems that it does not support, its reason, and the computation."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from ropewalk.attention.problem import AttentionInputs, Problem


class Backend(NamedTuple):
    """One way to compute attention. Each backend's file ends with its record."""

    name: str
    why_not: Callable[[Problem], str | None]  # why it does not support a problem; nothing where it does
    why: Callable[[Problem], str]  # what it does with a problem that it supports, for `explain`
    run: Callable[[AttentionInputs], Tensor]  # the output, [batch, heads, queries, value_dim]
