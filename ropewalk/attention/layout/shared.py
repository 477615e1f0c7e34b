"""What the layers of one forward pass share: segments and rotations, from the same positions under the same extension.

A forward pass opens one `SharedLayout` around its layers. Results computed inside are stored under their inputs for the
length of the pass. Outside, nothing is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from torch import Tensor

from ropewalk.attention.scoped import scoped

Result = TypeVar("Result")
MOST_NUMBERS = 2**24  # numbers: larger results are computed anew, since a pass holds them until its end


class SharedLayout:
    """What one pass has computed so far."""

    def __init__(self) -> None:
        self.results: dict[Hashable, Any] = {}
        self.size = 0


_OPEN: ContextVar[SharedLayout | None] = ContextVar("shared", default=None)


@contextmanager
def share_results(shared: SharedLayout) -> Iterator[None]:
    """Store results while the context is open, and reuse them."""
    with scoped(_OPEN, shared):
        yield


def compute_once(
    what: str, spec: Hashable, tensors: tuple[Tensor, ...], compute: Callable[[], Result], size: int = 0
) -> Result:
    """The result of `compute`, once for a spec and the contents of tensors; `size` is the count of its numbers."""
    shared = _OPEN.get()
    if shared is None or shared.size + size > MOST_NUMBERS or any(tensor.device.type != "cpu" for tensor in tensors):
        return compute()
    key = (what, spec, *((tensor.dtype, tensor.shape, tensor.numpy().tobytes()) for tensor in tensors))
    if key not in shared.results:
        shared.results[key] = compute()
        shared.size += size
    result: Result = shared.results[key]
    return result
