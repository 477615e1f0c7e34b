"""The memory of all keys and values: slabs of cells, which extensions borrow and cut into pages.

A page holds `size` tokens of one layer in as many lanes as the extension's reach needs (ropewalk.attention.paged). A
cell is one lane of a page. A slab has as many cells as every extension can cut into whole pages, so all extensions
share one buffer per layer, and none needs its own.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from ropewalk.errors import DoesNotFit

if TYPE_CHECKING:
    from ropewalk.serve.generation.memory.page_space import PageSpace


class CellShape(NamedTuple):
    """One lane of a page of one layer: key heads and their size."""

    groups: int
    head_dim: int


class SlabPool:
    """Slabs of cells, in one buffer for each layer."""

    def __init__(
        self,
        shapes: Sequence[CellShape],
        lanes: Sequence[int],
        *,
        size: int,
        limit: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.size, self.cells = size, math.lcm(*lanes)
        numbers = self.cells * size * sum(shape.groups * shape.head_dim for shape in shapes)
        self.slab_bytes = numbers * dtype.itemsize
        count = limit // self.slab_bytes
        if count < 1:
            rule = f"at least {self.slab_bytes / 2**20:.3g} MiB, one slab of pages"
            raise DoesNotFit("cache_memory", rule, f"{limit / 2**20:.3g} MiB")
        self.free = list(range(count - 1, -1, -1))
        self.count = count
        self.spaces: list[PageSpace] = []
        self._buffers = [
            _blank((count * self.cells, shape.groups, size, shape.head_dim), dtype, device) for shape in shapes
        ]

    def pages(self, layer: int, lanes: int) -> Tensor:
        """The whole memory of a layer, as pages of so many lanes: [pages, key heads, lanes, size, head size]."""
        cells, groups, size, head_dim = self._buffers[layer].shape
        return self._buffers[layer].view(cells // lanes, groups, lanes, size, head_dim)

    def pages_of(self, slab: int, lanes: int) -> range:
        """The numbers of a slab's pages of so many lanes."""
        per_slab = self.cells // lanes
        return range(slab * per_slab, (slab + 1) * per_slab)

    @property
    def bytes_used(self) -> int:
        """Of the slabs that are borrowed."""
        return (self.count - len(self.free)) * self.slab_bytes


def _blank(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Zeros; on a CPU the system gives memory only when a page is first written.

    numpy's zeros would do so in huge pages, which take the system eight times as long to find.
    """
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    memory = mmap.mmap(-1, math.prod(shape) * dtype.itemsize, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return torch.frombuffer(memory, dtype=dtype).view(shape)
