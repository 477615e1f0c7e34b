"""Which past keys a reach can still see; the others may be dropped. Derived from its spans, never configured."""

from __future__ import annotations

import functools
from typing import NamedTuple

import torch

from ropewalk.extension.extension import Extension
from ropewalk.methods.reach import Reach, Span
from ropewalk.methods.reach.reach import At

FAR_POSITION = 2**40  # a position far beyond the first keys
INCREMENTS_CHECKED = 8  # how many increments of span.start are checked


class Retention(NamedTuple):
    """The `first` keys of a sequence and the `last` ones; all of them where `last` is nothing."""

    first: int = 0
    last: int | None = 0

    @property
    def everything(self) -> bool:
        return self.last is None

    def __or__(self, other: Retention) -> Retention:
        last = None if self.last is None or other.last is None else max(self.last, other.last)
        return Retention(max(self.first, other.first) if last is not None else 0, last)


def span_retention(span: Span) -> Retention:
    """What a query of any number, and every later one, can see by this span."""
    if _bound_at(span.start, FAR_POSITION) > 0:
        return Retention(last=_widest(span.start))
    stop, later = _bound_at(span.stop, FAR_POSITION), _bound_at(span.stop, 2 * FAR_POSITION)
    return Retention(first=stop) if stop == later else Retention(last=None)


def reach_retention(reach: Reach) -> Retention:
    """What any of the reach's spans can still see."""
    total = Retention()
    for span in reach.spans():
        total |= span_retention(span)
    return total


def extension_retention(extension: Extension) -> Retention:
    """What any head of a layer can still see, be it in tokens that are read or in those that the model writes."""
    reaches = [reach for phase in extension.phases for reach in phase.reaches]
    return functools.reduce(Retention.__or__, map(reach_retention, reaches))


def sees_everything(extension: Extension) -> bool:
    """Whether every head of a layer can see all past keys, in tokens that are read too."""
    return all(reach_retention(reach).everything for reach in extension.reaches)


def _bound_at(bound: At, position: int) -> int:
    return int(bound(torch.tensor(position)))


def _widest(start: At) -> int:
    """The most keys from `start` to the query itself: a start that rises in steps is read just before each step."""
    widest, position = 0, FAR_POSITION
    for _ in range(INCREMENTS_CHECKED):
        here = _bound_at(start, position)
        end = _end(start, position)
        widest, position = max(widest, end + 1 - here), end + 1
    return widest


def _end(start: At, position: int) -> int:
    """The last position where `start` equals its value at this one: by doubling the distance, then by bisection."""
    here, step = _bound_at(start, position), 1
    while _bound_at(start, position + step) == here:
        step *= 2
    low, high = position + step // 2, position + step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _bound_at(start, middle) == here else (low, middle)
    return low
