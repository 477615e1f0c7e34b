"""Weights that change: a state dict and its facts in, new ones out. One signature for every operation."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping

from torch import Tensor

from ropewalk.errors import DoesNotFit
from ropewalk.methods.facts import Facts
from ropewalk.methods.spec import Spec

State = Mapping[str, Tensor]


class Surgery(Spec):
    """An operation on weights. It returns a new dict and does not change the tensors of the old one."""

    @abstractmethod
    def convert(self, state: State, facts: Facts) -> tuple[dict[str, Tensor], Facts]:
        """The changed weights and the facts of the changed model."""


def ending_in(state: State, suffixes: tuple[str, ...], what: str = "weights") -> list[str]:
    """The names of the entries that end in one of the suffixes (a whole last part: `v_proj.weight`)."""
    names = [name for name in state if any(f".{name}".endswith(f".{suffix}") for suffix in suffixes)]
    if not names:
        raise DoesNotFit.because("state", f"the model has no {what} ending in {' or '.join(suffixes)}")
    return names
