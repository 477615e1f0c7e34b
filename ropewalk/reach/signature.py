"""Which keys a query reaches, and how far away each appears. One signature for every reach."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ropewalk.errors import DoesNotFit
from ropewalk.facts import Facts
from ropewalk.spec import Spec

At = Callable[[Tensor], Tensor]


class Span(NamedTuple):
    """The keys j with start(i) <= j < stop(i), seen from query i as if they stood at k_at(j) and it at q_at(i).

    All four take whole positions and answer elementwise. `bounds` cuts what reaches below 0 or beyond the query.
    """

    start: At
    stop: At
    q_at: At
    k_at: At

    def bounds(self, i: Tensor) -> tuple[Tensor, Tensor]:
        """start and stop of every query, inside [0, i + 1), start never above stop."""
        start = self.start(i).clamp(min=0)
        return start, torch.minimum(self.stop(i), i + 1).maximum(start)


class Reach(Spec):
    """A reach: disjoint spans, none of which looks ahead."""

    @abstractmethod
    def spans(self) -> tuple[Span, ...]:
        """The spans, nearest first."""


def effective_distances(reach: Reach, i: Tensor, j: Tensor) -> Tensor:
    """How far away each of these keys appears to each of these rows, [rows, keys]; NaN where it is out of reach."""
    seen = torch.full((len(i), len(j)), math.nan, dtype=torch.float64)
    for span in reach.spans():
        start, stop = span.bounds(i)
        inside = (start[:, None] <= j) & (j < stop[:, None])
        seen = torch.where(inside, span.q_at(i).double()[:, None] - span.k_at(j).double(), seen)
    return seen


def furthest(reach: Reach, i: int) -> float:
    """The largest distance that a row is shown: that of the first key of a span, where k_at is lowest."""
    row = torch.tensor([i])
    starts = torch.cat([span.bounds(row)[0] for span in reach.spans()])
    return float(effective_distances(reach, row, starts).nan_to_num(0).max())


def itself(position: Tensor) -> Tensor:
    """Where the token really is."""
    return position


def always(value: float) -> At:
    """The same place for everyone."""
    return lambda position: torch.full_like(position, value)


def after(position: Tensor) -> Tensor:
    """The end of a span that includes the query itself."""
    return position + 1


def last(window: int) -> Span:
    """The last `window` keys, the query's own included, where they stand."""
    return Span(start=lambda i: i - window + 1, stop=after, q_at=itself, k_at=itself)


def before(window: int) -> At:
    """The end of what came before the last `window` keys."""
    return lambda i: i - window + 1


def require_seen(name: str, distance: int, facts: Facts, *, seen: int) -> None:
    """Refuse a distance the model was not trained on: seeing it is what breaks, and the method exists to avoid it."""
    if distance > seen:
        raise DoesNotFit(
            name,
            f"at most {seen} for a model trained on {facts.trained_len} tokens (it never saw a larger distance, and "
            "this method would show it one)",
            distance,
            remedy="a quarter to a half of the trained length works best, or stretch the frequencies as well",
        )
