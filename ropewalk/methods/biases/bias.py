"""bias_h(distance): what is added to a logit, depending on the distance of the key. One signature for every bias."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from torch import Tensor

from ropewalk.methods.facts import Facts
from ropewalk.methods.spec import Learnable, Weights as Weights


class Bias(Learnable):
    """A bias."""

    of_distance_alone: ClassVar[bool] = True  # false where the query's position matters too

    @abstractmethod
    def bias(self, distance: Tensor, query: Tensor, facts: Facts, weights: Weights) -> Tensor:
        """The bias of every head: a head dimension, then the shape of `distance`.

        `distance` is the effective one, q_at(i) - k_at(j) >= 0, and `query` is i; both have one shape.
        """

    def check_reached(self, furthest: float, whole: bool, facts: Facts) -> None:
        """Refuse a reach that this bias is not for: by its largest effective distance in a text of many trained
        lengths, and by whether a query sees the whole text."""

    def same_between(self, nearest: Tensor, furthest: Tensor, facts: Facts) -> bool:
        """Whether each query has one bias for all its distances from `nearest` to `furthest`; that is fast."""
        return False


def per_head(values: Tensor, distance: Tensor) -> Tensor:
    """[heads] in a shape that broadcasts to [heads, *distance.shape]."""
    return values.view(-1, *[1] * distance.dim())
