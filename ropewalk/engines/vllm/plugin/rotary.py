"""Rotary modules of vLLM under a plan: any static table, and a factor for each query row, in vLLM's own kernels.

What the modules are made of is a function of `get_rope`'s arguments, so layers with the same arguments share one.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import torch
from torch import Tensor, nn
from vllm.model_executor.layers.rotary_embedding.base import RotaryEmbedding
from vllm.model_executor.layers.rotary_embedding.mrope import MRotaryEmbedding

from ropewalk.engines.layer_plan import ModelPlan, RotaryPlan
from ropewalk.errors import DoesNotFit

TABLE_ROWS = 2**16  # rows whose angles are computed at once, in float64


class Rows(RotaryEmbedding):
    """vLLM's own module, with another table. A factor of all logits is in it, so that it costs nothing."""

    def __init__(
        self, rotary: RotaryPlan, head_size: int, rows: int, base: float, neox: bool, dtype: torch.dtype
    ) -> None:
        super().__init__(head_size, 2 * len(rotary.inv_freq), rows, base, neox, dtype, init_cache=False)
        self.register_buffer("cos_sin_cache", _cos_sin(rotary, rows, dtype), persistent=False)


class Sections(NamedTuple):
    """How vLLM's module reads tokens that have several positions, such as those of images (M-RoPE)."""

    section: tuple[int, ...]  # how many pairs follow each axis
    interleaved: bool
    positions_factor: int  # how many positions a token may take


class RowsOfAxes(MRotaryEmbedding):
    """vLLM's own module for tokens that have several positions, with another table."""

    def __init__(
        self, rotary: RotaryPlan, head_size: int, rows: int, base: float, neox: bool, dtype: torch.dtype, axes: Sections
    ) -> None:
        self._rotary, section = rotary, list(axes.section)
        factor = axes.positions_factor
        dims = 2 * len(rotary.inv_freq)
        super().__init__(head_size, dims, rows, base, neox, dtype, section, axes.interleaved, positions_factor=factor)

    def _compute_cos_sin_cache(self) -> Tensor:
        return _cos_sin(self._rotary, self.cache_max_position_num, self.dtype)


class ScaledRows(Rows):
    """`Rows` whose queries are multiplied by a factor of their position before they are rotated."""

    def __init__(
        self, rotary: RotaryPlan, head_size: int, rows: int, base: float, neox: bool, dtype: torch.dtype
    ) -> None:
        super().__init__(rotary, head_size, rows, base, neox, dtype)
        scale = torch.ones(rows) if rotary.row_scale is None else rotary.row_scale.float()
        self.register_buffer("row_scale", scale[:, None].to(torch.get_default_device()), persistent=False)

    def forward_native(self, positions: Tensor, query: Tensor, key: Tensor | None = None) -> Any:
        """In torch's operations, which a compiler joins."""
        positions = _of_text(positions)
        by = self._by(positions)
        query = (query.view(len(by), -1) * by).to(query.dtype).view_as(query)
        return super().forward_native(positions, query, key)

    def forward_cuda(self, positions: Tensor, query: Tensor, key: Tensor | None = None) -> Any:
        """By vLLM's kernel, in place."""
        positions = _of_text(positions)
        return super().forward_cuda(positions, self._multiplied(positions, query), key)

    def forward_cpu(self, positions: Tensor, query: Tensor, key: Tensor | None = None) -> Any:
        """By vLLM's kernel, in place."""
        positions = _of_text(positions)
        return super().forward_cpu(positions, self._multiplied(positions, query), key)

    def _multiplied(self, positions: Tensor, query: Tensor) -> Tensor:
        """The queries, multiplied in place, as vLLM's kernel rotates them in place. The product is in float32."""
        by = self._by(positions)
        query.view(len(by), -1).mul_(by)
        return query

    def _by(self, positions: Tensor) -> Tensor:
        by: Tensor = self.row_scale.index_select(0, positions.flatten())
        return by


def _of_text(positions: Tensor) -> Tensor:
    """One position a token. Where a model gives several (M-RoPE), those of text are equal, and images are refused."""
    return positions if positions.dim() == 1 else positions[0]


class Unrotated(nn.Module):
    """Queries and keys as they are: Ropewalk's attention rotates them."""

    def forward(self, positions: Tensor, query: Tensor, key: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Queries and keys, unchanged."""
        return query, key


Module = Rows | RowsOfAxes | Unrotated

# Modules that are in use, by what they are made of.
_SHARED: WeakValueDictionary[tuple[Any, ...], nn.Module] = WeakValueDictionary()


def rotary_module(
    plan: ModelPlan,
    head_size: int,
    rotary_dim: int,
    max_position: int,
    neox: bool,
    dtype: torch.dtype | None,
    axes: Sections | None = None,
) -> Module:
    """The rotary module of the layers that a plan changes, or a refusal of arguments that contradict the plan."""
    _require_layout(plan, head_size, rotary_dim, neox)
    dtype, rows = dtype or torch.get_default_dtype(), max(max_position, plan.target_len)
    key = (id(plan), rows, dtype, axes, torch.get_default_device())
    module = _SHARED.get(key)
    if module is None:
        module = _SHARED[key] = _make(plan, head_size, rows, neox, dtype, axes)
        module.plan = plan  # keeps the plan, and so its id, for as long as the module lasts
    return module  # type: ignore[return-value]


def _make(plan: ModelPlan, head_size: int, rows: int, neox: bool, dtype: torch.dtype, axes: Sections | None) -> Module:
    if not plan.is_tables:
        return Unrotated()
    rotary, base = plan.rotary(rows), plan.planned[0].facts.base
    if axes is not None and rotary.row_scale is None:
        return RowsOfAxes(rotary, head_size, rows, base, neox, dtype, axes)
    kind = Rows if rotary.row_scale is None else ScaledRows
    return kind(rotary, head_size, rows, base, neox, dtype)


def _require_layout(plan: ModelPlan, head_size: int, rotary_dim: int, neox: bool) -> None:
    for layer in plan.planned:
        facts = layer.facts
        wanted = (facts.head_dim, facts.rotating, facts.interleaved)
        if layer.rotates and wanted != (head_size, rotary_dim, not neox):
            rule = f"(head_dim, rotating, interleaved) = {wanted}, as the plan says"
            raise DoesNotFit("rotary module", rule, (head_size, rotary_dim, not neox))


def _cos_sin(rotary: RotaryPlan, rows: int, dtype: torch.dtype) -> Tensor:
    """cos and sin of every row in float64, rounded once."""
    with torch.device("cpu"):
        parts = torch.split(torch.arange(rows).double(), TABLE_ROWS)
        angles = (torch.outer(part, rotary.inv_freq) for part in parts)
        rounded = [(torch.cat([x.cos(), x.sin()], -1) * rotary.amplitude).to(dtype) for x in angles]
        table = torch.cat(rounded)
    return table.to(torch.get_default_device())
