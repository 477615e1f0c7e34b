"""Which keys a query sees, and at which effective distance. One signature for every reach."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ropewalk.errors import DoesNotFit
from ropewalk.methods.facts import Facts
from ropewalk.methods.spec import Spec

At = Callable[[Tensor], Tensor]
AtPairs = Callable[[Tensor, Tensor], Tensor]


class PairPlaces(NamedTuple):
    """Where each pair of queries and keys is rotated to, if pairs differ.

    Both functions take positions with a last axis for the pairs (of one entry if all pairs stand alike), and how often
    each pair turns in the trained length. They return a position for each pair.
    """

    q_at: AtPairs
    k_at: AtPairs


class Span(NamedTuple):
    """The keys j with start(i) <= j < stop(i), which query i sees as if it were at q_at(i) and they at k_at(j).

    All four functions work elementwise on whole positions. `bounds` cuts spans below 0 and beyond the query. Where the
    pairs of a token are rotated to different places, `pairs` says where; q_at and k_at then count for biases only.
    """

    start: At
    stop: At
    q_at: At
    k_at: At
    pairs: PairPlaces | None = None

    def q_rotated(self, i: Tensor, turns: Tensor) -> Tensor:
        """The positions that queries are rotated to; one for each pair, in a last axis, if pairs differ."""
        return self.q_at(i) if self.pairs is None else self.pairs.q_at(i[..., None], turns)

    def k_rotated(self, j: Tensor, turns: Tensor) -> Tensor:
        """The same of keys."""
        return self.k_at(j) if self.pairs is None else self.pairs.k_at(j[..., None], turns)

    def bounds(self, i: Tensor) -> tuple[Tensor, Tensor]:
        """start and stop of every query, within [0, i + 1], start at most stop."""
        start = self.start(i).clamp(min=0)
        return start, torch.minimum(self.stop(i), i + 1).maximum(start)


class Reach(Spec):
    """A reach: disjoint spans, all causal; those of tokens that a model reads, where `writing` is another reach."""

    @property
    def writing(self) -> Reach:
        """The reach of tokens that the model writes, after a prompt: mostly the same."""
        return self

    @abstractmethod
    def spans(self) -> tuple[Span, ...]:
        """The spans, nearest first."""


def effective_distances(reach: Reach, i: Tensor, j: Tensor) -> Tensor:
    """The effective distance of every key from every row, [rows, keys]; NaN where it is out of reach."""
    distances = torch.full((len(i), len(j)), math.nan, dtype=torch.float64)
    for span in reach.spans():
        start, stop = span.bounds(i)
        inside = (start[:, None] <= j) & (j < stop[:, None])
        distances = torch.where(inside, span.q_at(i).double()[:, None] - span.k_at(j).double(), distances)
    return distances


def furthest(reach: Reach, i: int) -> float:
    """The largest effective distance of a row: that of the first key of a span, where k_at is lowest."""
    row = torch.tensor([i])
    starts = torch.cat([span.bounds(row)[0] for span in reach.spans()])
    return float(effective_distances(reach, row, starts).nan_to_num(0).max())


def itself(position: Tensor) -> Tensor:
    """The token's position itself."""
    return position


def always(value: float) -> At:
    """The same position for all tokens."""
    return lambda position: torch.full_like(position, value)


def after(position: Tensor) -> Tensor:
    """The end of a span that includes the query itself."""
    return position + 1


def last(window: int) -> Span:
    """The last `window` keys, including the query's, at their positions."""
    return Span(start=lambda i: i - window + 1, stop=after, q_at=itself, k_at=itself)


def before(window: int) -> At:
    """The end of the keys before the last `window` ones."""
    return lambda i: i - window + 1


def require_trained(name: str, distance: int, facts: Facts, *, largest: int) -> None:
    """Refuse an effective distance beyond training: it breaks the model, and the method exists to avoid it."""
    if distance > largest:
        rule = f"at most {largest} for a model trained on {facts.trained_len} tokens, which knows no larger distance"
        remedy = "a quarter to a half of the trained length works best; or add a schedule such as yarn"
        raise DoesNotFit(name, rule, distance, remedy=remedy)
