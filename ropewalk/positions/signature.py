"""How tokens are numbered. One signature for every numbering."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Generator, Tensor

from ropewalk.spec import Spec


class Positions(Spec):
    """A numbering."""

    @abstractmethod
    def number(self, length: int, generator: Generator | None = None) -> Tensor:
        """`length` ascending whole numbers, none below 0: drawn with a generator (training), fixed without one."""


def draw(low: int, high: int, generator: Generator) -> int:
    """A whole number from low to high, both included."""
    return int(torch.randint(low, high + 1, (), generator=generator))
