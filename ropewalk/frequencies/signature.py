"""theta: how fast each pair of dimensions is rotated. One signature for every schedule."""

from __future__ import annotations

from abc import abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor

from ropewalk.facts import Facts
from ropewalk.spec import Spec


class Table(NamedTuple):
    """One entry per pair, float64. A pair (a, b) is the complex number a + bi; at position m a query is multiplied by
    exp(m (log_decay + i inv_freq)) and a key by the same at -m for the decay and m for the angle, so that their product
    depends on the distance alone."""

    inv_freq: Tensor  # radians per position
    log_decay: Tensor  # logarithm of a product's factor per step of distance


class Frequencies(Spec):
    """A schedule of frequencies."""

    @abstractmethod
    def table(self, facts: Facts, length: int) -> Table:
        """The table for a query row whose text, itself included, is `length` tokens long."""

    def stages(self, facts: Facts, length: int) -> tuple[int, ...]:
        """The row lengths, up to `length`, at which the table changes: one, unless the schedule depends on it."""
        return (1,)

    @property
    def stretch(self) -> float:
        """How many trained lengths this schedule covers."""
        return float(getattr(self, "factor", 1.0))


def pair_index(facts: Facts) -> Tensor:
    """i = 0 .. d/2-1."""
    return torch.arange(facts.rotating // 2, dtype=torch.float64)


def trained(facts: Facts) -> Tensor:
    """The frequencies that the model was trained with: its own schedule, or base^(-2i/d)."""
    return formula(facts) if facts.inv_freq is None else torch.tensor(facts.inv_freq, dtype=torch.float64)


def formula(facts: Facts) -> Tensor:
    """base^(-2i/d), whatever the model's own schedule is."""
    return facts.base ** (-2 * pair_index(facts) / facts.rotating)


def without_decay(inv_freq: Tensor) -> Table:
    """A table of rotation alone."""
    return Table(inv_freq, torch.zeros_like(inv_freq))
