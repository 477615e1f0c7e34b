"""What the layers of one pass have in common, made once: shapes and turns, from the same positions by the same spec.

A forward pass opens one `SharedLayout` around its layers. What is made inside is kept by its whole key, for as long as
the pass keeps it. Outside nothing is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from torch import Tensor

Made = TypeVar("Made")
MOST = 2**24  # numbers: what is larger is made anew, since a pass holds it until its end


class SharedLayout:
    """What one pass has made so far."""

    def __init__(self) -> None:
        self.made: dict[Hashable, Any] = {}
        self.size = 0


_OPEN: ContextVar[SharedLayout | None] = ContextVar("shared", default=None)


@contextmanager
def sharing(shared: SharedLayout) -> Iterator[None]:
    """Keep what is made meanwhile, and use what is kept."""
    token = _OPEN.set(shared)
    try:
        yield
    finally:
        _OPEN.reset(token)


def once(what: str, spec: Hashable, tensors: tuple[Tensor, ...], make: Callable[[], Made], size: int = 0) -> Made:
    """What `make` gives, made once for a spec and the contents of tensors; `size` is how many numbers it will have."""
    shared = _OPEN.get()
    if shared is None or shared.size + size > MOST or any(each.device.type != "cpu" for each in tensors):
        return make()
    key = (what, spec, *((each.dtype, each.shape, each.numpy().tobytes()) for each in tensors))
    if key not in shared.made:
        shared.made[key] = make()
        shared.size += size
    made: Made = shared.made[key]
    return made
