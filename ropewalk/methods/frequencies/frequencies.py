"""theta: how fast each pair of dimensions is rotated. One signature for every schedule."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from functools import reduce
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from ropewalk.methods.facts import Facts
from ropewalk.methods.spec import Spec

# Radians per position: less than one in any text. A table of an engine stops a pair by such a number.
LEAST_ROTATION = 2.0**-62


class Table(NamedTuple):
    """One entry per pair, float64. A pair (a, b) is the complex number a + bi; at position m a query is multiplied by
    exp(m (log_decay + i inv_freq)) and a key by the same at -m for the decay and m for the angle, so that their product
    depends on the distance alone."""

    inv_freq: Tensor  # radians per position
    log_decay: Tensor  # logarithm of a product's factor per step of distance


class Frequencies(Spec):
    """A schedule of frequencies.

    A wrapper changes the table of another schedule, its `inner`: it has `wraps`, and a field `inner` that may be left
    open. What it does not say for itself is its inner schedule's.
    """

    wraps: ClassVar[bool] = False

    @abstractmethod
    def table(self, facts: Facts, length: int) -> Table:
        """The table for a query row whose text, itself included, is `length` tokens long."""

    def stages(self, facts: Facts, length: int) -> tuple[int, ...]:
        """The row lengths, up to `length`, at which the table changes: one, unless the schedule depends on it."""
        return inside.stages(facts, length) if (inside := inner_of(self)) else (1,)

    def check_against(self, facts: Facts) -> None:
        if inside := inner_of(self):
            inside.check_against(facts)

    @property
    def stretch(self) -> float:
        """How many trained lengths this schedule covers."""
        return inside.stretch if (inside := inner_of(self)) else float(getattr(self, "factor", 1.0))


class Layered(NamedTuple):
    """A schedule taken apart: what all wrappers are around, and the wrappers from the inside out, each left open."""

    core: Frequencies | None
    wrappers: tuple[Frequencies, ...]


def unwrap(schedule: Frequencies | None) -> Layered:
    """The schedule taken apart."""
    if schedule is None or not schedule.wraps:
        return Layered(schedule, ())
    core, wrappers = unwrap(inner_of(schedule))
    return Layered(core, (*wrappers, _wrap_one(None, schedule)))


def wrap(core: Frequencies | None, wrappers: tuple[Frequencies, ...]) -> Frequencies | None:
    """A schedule in wrappers: the first is the innermost."""
    return reduce(_wrap_one, wrappers, core)


def rewrap(schedule: Frequencies, below: Frequencies | None) -> Frequencies | None:
    """A schedule in the place of the one below; wrappers that are open go around that one."""
    core, wrappers = unwrap(schedule)
    return wrap(below, wrappers) if core is None else schedule


def inner_of(schedule: Frequencies) -> Frequencies | None:
    """The schedule that another one contains, if it does."""
    return getattr(schedule, "inner", None)


def inner_table(wrapper: Frequencies, facts: Facts, length: int) -> Table:
    """The table that a wrapper changes: its inner schedule's, or the trained one."""
    inside = inner_of(wrapper)
    return without_decay(trained_theta(facts)) if inside is None else inside.table(facts, length)


def _wrap_one(inner: Frequencies | None, wrapper: Frequencies) -> Frequencies:
    changed: Any = {"inner": inner}
    return replace(wrapper, **changed)


def moving(theta: Tensor) -> Tensor:
    """Which pairs rotate."""
    return theta > LEAST_ROTATION


def pair_index(facts: Facts) -> Tensor:
    """i = 0 .. d/2-1."""
    return torch.arange(facts.rotating // 2, dtype=torch.float64)


def trained_theta(facts: Facts) -> Tensor:
    """The frequencies that the model was trained with: its own schedule, or base^(-2i/d)."""
    return formula(facts) if facts.inv_freq is None else torch.tensor(facts.inv_freq, dtype=torch.float64)


def formula(facts: Facts, base: float | None = None) -> Tensor:
    """base^(-2i/d), of the model's base or of another, whatever the model's own schedule is."""
    return (base or facts.base) ** (-2 * pair_index(facts) / facts.rotating)


def without_decay(inv_freq: Tensor) -> Table:
    """A table of rotation alone."""
    return Table(inv_freq, torch.zeros_like(inv_freq))
