"""scale(i): the factor of the logits of one query row. One signature and one convention for every scale.

References put the number in different places: cos and sin, so that it counts twice, the query, or the logits. Here a
scale always multiplies products of queries and keys; code that writes it elsewhere converts it.

What it multiplies is part of it. A scale over the head multiplies the whole logit. A temperature of the rotation
multiplies the dimensions that rotate, as a factor of cos and sin does: that is how transformers and engines compute
YaRN. Where all dimensions rotate, both are the same.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor

from ropewalk.methods.facts import Facts
from ropewalk.methods.spec import Learnable, Weights as Weights

Over = Annotated[
    Literal["rotating", "head"], "what it multiplies: the dimensions that rotate, as cos and sin do, or the whole head"
]


def constant(value: float, position: Tensor) -> Tensor:
    """The same factor for every head and position."""
    return torch.full_like(position, value, dtype=torch.float64).unsqueeze(0)


class Scale(Learnable):
    """A scale."""

    of_frequencies: ClassVar[bool] = False  # whether it is the temperature of a schedule
    of_row: ClassVar[bool] = True  # whether it depends on the row, near or far

    @property
    def of_rotation(self) -> bool:
        """Whether it multiplies the rotating dimensions alone."""
        return getattr(self, "over", "head") == "rotating"

    @abstractmethod
    def scale(self, position: Tensor, facts: Facts, weights: Weights) -> Tensor:
        """One factor per head (or a head dimension of 1) and query position, float64."""
