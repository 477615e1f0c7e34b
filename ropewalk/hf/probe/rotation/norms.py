"""Norms that follow the rotation: which modules they are, and what they multiply each dimension by.

An RMS norm commutes with a rotation; its weight does not. So queries and keys are divided by the weights before our
rotation, and the rotated queries are multiplied by both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ropewalk.attention.rotation.precision import to_compute_dtype


class NormsAfter(NamedTuple):
    """The modules whose answers are the queries and keys that attention gets; None where there are none."""

    q: nn.Module | None = None
    k: nn.Module | None = None


@contextmanager
def watch_norms(model: nn.Module) -> Iterator[Callable[[Tensor, Tensor], NormsAfter]]:
    """A function of the queries and keys of a forward inside the block: which norms returned them."""
    answers: list[tuple[nn.Module, Tensor]] = []

    def keep(module: nn.Module, _: Any, answer: Any) -> None:
        if isinstance(answer, Tensor):
            answers.append((module, answer))

    def norms_of(q: Tensor, k: Tensor) -> NormsAfter:
        return NormsAfter(*(next((m for m, answer in answers if _is_answer(m, answer, x)), None) for x in (q, k)))

    hooks = [module.register_forward_hook(keep) for module in model.modules() if _is_norm(module)]
    try:
        yield norms_of
    finally:
        for hook in hooks:
            hook.remove()


def norm_weight(norm: nn.Module | None, size: int) -> Tensor:
    """What a norm multiplies each dimension by, up to one factor of all: its answer to ones."""
    if norm is None:
        return torch.ones(())
    weight = next(norm.parameters())
    device = "cpu" if weight.device.type == "meta" else weight.device  # accelerate moves it
    answer: Tensor = norm(torch.ones(size, dtype=weight.dtype, device=device))
    return to_compute_dtype(answer)


def _is_norm(module: nn.Module) -> bool:
    """Whether its parameters are vectors only."""
    parameters = list(module.parameters())
    return bool(parameters) and all(parameter.dim() == 1 for parameter in parameters)


def _is_answer(module: nn.Module, answer: Tensor, x_bhnd: Tensor) -> bool:
    """Whether these are the same numbers in memory, from a module with a weight for each dimension of a head."""
    same = answer.data_ptr() == x_bhnd.data_ptr() and answer.numel() == x_bhnd.numel()
    return same and all(len(parameter) == x_bhnd.shape[-1] for parameter in module.parameters())
