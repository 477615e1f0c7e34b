"""How the next-token distributions of several contexts become one. One signature for every rule."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from ropewalk.errors import InvalidValue
from ropewalk.methods.spec import Spec


class Combined(NamedTuple):
    """One distribution, and the row it was taken from, if it was one."""

    logp: Tensor  # [vocabulary], unnormalised logarithms
    chosen: int | None


class Decoding(Spec):
    """A rule of combination."""

    of_contexts: ClassVar[bool] = True  # false where it combines several readings of one text
    of_attention: ClassVar[bool] = False  # true where attention joins the contexts, and not their distributions

    @abstractmethod
    def combine(self, logp: Tensor, last: int | None = None) -> Combined:
        """`logp` is [1 + contexts, vocabulary] normalised; row 0 has no context. `last` is the row chosen before."""


def discount(logp: Tensor, guess: Tensor, beta: float, floor: float = -torch.inf) -> Tensor:
    """(1 + beta) logp - beta guess, where the context-free guess is above the floor; logp elsewhere."""
    return torch.where(guess > floor, (1 + beta) * logp - beta * guess, logp)


def require_contexts(logp: Tensor) -> None:
    """Refuse anything but the empty context and at least one more."""
    if logp.dim() != 2 or logp.shape[0] < 2:
        raise InvalidValue("logp", "[1 + contexts, vocabulary] with at least one context", tuple(logp.shape))
    if logp.isnan().any():
        raise InvalidValue("logp", "free of NaN", "NaN")
