"""How tokens are numbered. One signature for every numbering."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Generator, Tensor

from ropewalk.errors import InvalidValue
from ropewalk.methods.spec import Spec


class Positions(Spec):
    """A numbering."""

    @abstractmethod
    def number(self, length: int, generator: Generator | None = None) -> Tensor:
        """`length` ascending whole numbers, none below 0: drawn with a generator (training), fixed without one."""


def require_length(length: int) -> None:
    """Refuse anything but a number of tokens."""
    if isinstance(length, bool) or not isinstance(length, int) or length < 0:
        raise InvalidValue("length", "a whole number of tokens", length)


def draw(low: int, high: int, generator: Generator) -> int:
    """A whole number from low to high, both included."""
    return int(torch.randint(low, high + 1, (), generator=generator))
