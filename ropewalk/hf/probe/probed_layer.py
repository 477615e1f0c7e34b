"""What the probe says of one attention layer."""

from __future__ import annotations

from typing import NamedTuple

from torch import nn

from ropewalk.hf.probe.cache_contents import CachedLayer
from ropewalk.hf.probe.rotation import LongTable, NormsAfter, PositionTable
from ropewalk.methods.reach import Chunks, Reach, Window


class ProbedLayer(NamedTuple):
    """What one attention layer does with positions."""

    module: nn.Module
    heads: int
    groups: int
    head_dim: int
    value_dim: int
    scaling: float
    first: int = 0  # the first rotating dimension, and how many rotate
    rotating: int = 0
    interleaved: bool | None = False  # None: its pairs are of no known kind
    norm_follows: bool = False
    norms: NormsAfter = NormsAfter()  # these norms, where they have weights
    inv_freq: tuple[float, ...] = ()  # its own table, radians per position
    temperature: float = 1.0  # the factor of its cos and sin
    varies: bool = False  # whether its table depends on the length of the text
    long_table: LongTable | None = None  # where it has one table for short texts and another for long ones
    plain_scaling: float | None = None  # `scaling` without the model's own schedule, where that was computed
    window: int | None = None
    chunk: int | None = None  # of layers that attend within chunks of the text
    softcap: float | None = None
    sinks: str | None = None  # the module's parameter with a logit per head; empty: it has sinks of another form
    rotary: nn.Module | None = None  # the rotary module with its table
    layer_type: str | None = None  # the layer type in calls of this module, where types have different tables
    clockwise: bool = False  # whether the second of a pair rotates towards the first
    cached: CachedLayer | None = None  # the place of its keys in the model's own cache; None without one
    axes: tuple[int, ...] = ()  # which position rotates each pair, where tokens have several; empty: they have one
    own_mask: bool = False  # whether it makes a mask of its own from the one that it is called with, or chooses keys
    slots: int = 0  # of a module that attends several times in one forward: how many slots of the cache it fills
    positions: PositionTable | None = None  # its table of sin and cos by position, where it has no rotary module
    inline: str = ""  # why its attention cannot be replaced; empty: it calls transformers' attention interface
    unsupported: str = ""  # what it asks of attention that the equation does not have; empty: nothing

    @property
    def stands_still(self) -> bool:
        """Whether it has a rotary table in which every pair stands still: its rotation was dropped."""
        return bool(self.inv_freq) and not any(self.inv_freq)

    @property
    def limit(self) -> int | None:
        """The most keys that its own mask shows a query; None: all."""
        return self.window or self.chunk

    @property
    def reach(self) -> Reach | None:
        """Its window or its chunks."""
        if self.window is not None:
            return Window(window=self.window)
        return None if self.chunk is None else Chunks(chunk=self.chunk)
