"""Rotary modules of vLLM under a plan: any static table, and a factor for each query row, in vLLM's own kernels.

Where each request has a factor of its own, their tables lie one after the other, and a token's position is counted from
the beginning of its request's table.

What the modules are made of is a function of `get_rope`'s arguments, so layers with the same arguments share one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import torch
from torch import Tensor, nn
from vllm.config import get_current_vllm_config
from vllm.model_executor.layers.rotary_embedding.base import RotaryEmbedding
from vllm.model_executor.layers.rotary_embedding.mrope import MRotaryEmbedding

from ropewalk.engines.layer_plan import ModelPlan, RotaryPlan
from ropewalk.errors import DoesNotFit

TABLE_ROWS = 2**16  # rows whose angles are computed at once, in float64


class Tables(NamedTuple):
    """What a module computes: one table, or one for each factor that a request may have, by growing length."""

    rotary: tuple[RotaryPlan, ...]
    rows: tuple[int, ...]  # of each
    base: float

    @classmethod
    def of(cls, plan: ModelPlan, positions: int, factor: int = 1) -> Tables:
        """Those of a plan; the last one has so many positions, of which a token takes up to `factor`."""
        lengths = [factor * length for length in (*(shorter.target_len for shorter in plan.shorter), positions)]
        rotary = tuple(one.rotary(length) for one, length in zip(plan.by_request, lengths, strict=True))
        return cls(rotary, tuple(lengths), plan.planned[0].facts.base)

    @property
    def dims(self) -> int:
        """The rotating dimensions."""
        return 2 * len(self.rotary[0].inv_freq)

    @property
    def starts(self) -> list[int]:
        """The first row of each, and the end of the last."""
        return [0, *accumulate(self.rows)]

    @property
    def scales(self) -> Tensor | None:
        """The factor of the query in every row, float64; None where it is 1 everywhere."""
        if all(one.row_scale is None for one in self.rotary):
            return None
        pairs = zip(self.rotary, self.rows, strict=True)
        with torch.device("cpu"):
            return torch.cat([torch.ones(n).double() if one.row_scale is None else one.row_scale for one, n in pairs])

    def cos_sin(self, dtype: torch.dtype) -> Tensor:
        """cos and sin of every row."""
        pairs = zip(self.rotary, self.rows, strict=True)
        return torch.cat([_cos_sin(one, rows, dtype) for one, rows in pairs]).to(torch.get_default_device())


class OfRequests:
    """A rotary module that may have a table for each factor of a request."""

    plan: ModelPlan
    starts: Sequence[int] = ()  # the first rows of several tables
    starts_t: Tensor  # of several: that of each token of a step

    def hold(self, starts: Sequence[int], tokens: int) -> None:
        """Make room for the tokens of a step, whose tables begin at some of these rows."""
        module: Any = self
        self.starts = starts
        module.register_buffer("starts_t", torch.zeros(tokens, dtype=torch.int64), persistent=False)

    def choose(self, lengths: Sequence[int], counts: Any) -> None:
        """Say the tables of the next step: so many tokens of each request, which ends within a length."""
        with torch.device("cpu"):
            starts = torch.tensor([self.starts[self.plan.index_of(length)] for length in lengths])
            starts = starts.repeat_interleave(torch.as_tensor(counts, dtype=torch.int64))
        self.starts_t[: len(starts)].copy_(starts)

    def forward(self, positions: Tensor, query: Tensor, key: Tensor | None = None) -> Any:
        """Rotate by the rows of each token's table."""
        if self.starts:
            positions = positions + self.starts_t[: positions.shape[-1]]
        return super().forward(positions, query, key)  # type: ignore[misc]


class Rows(OfRequests, RotaryEmbedding):
    """vLLM's own module, with another table. A factor of all logits is in it, so that it costs nothing."""

    def __init__(self, tables: Tables, head_size: int, neox: bool, dtype: torch.dtype) -> None:
        rows = sum(tables.rows)
        super().__init__(head_size, tables.dims, rows, tables.base, neox, dtype, init_cache=False)
        self.register_buffer("cos_sin_cache", tables.cos_sin(dtype), persistent=False)


class Sections(NamedTuple):
    """How vLLM's module reads tokens that have several positions, such as those of images (M-RoPE)."""

    section: tuple[int, ...]  # how many pairs follow each axis
    interleaved: bool
    positions_factor: int  # how many positions a token may take


class RowsOfAxes(OfRequests, MRotaryEmbedding):
    """vLLM's own module for tokens that have several positions, with another table."""

    def __init__(self, tables: Tables, head_size: int, neox: bool, dtype: torch.dtype, axes: Sections) -> None:
        self._tables, factor = tables, axes.positions_factor
        positions, section = tables.rows[-1] // factor, list(axes.section)
        more: Any = {"mrope_interleaved": axes.interleaved, "positions_factor": factor}
        super().__init__(head_size, tables.dims, positions, tables.base, neox, dtype, section, **more)

    def _compute_cos_sin_cache(self) -> Tensor:
        return self._tables.cos_sin(self.dtype)


class ScaledRows(Rows):
    """`Rows` whose queries are multiplied by a factor of their position before they are rotated."""

    def __init__(self, tables: Tables, head_size: int, neox: bool, dtype: torch.dtype) -> None:
        super().__init__(tables, head_size, neox, dtype)
        scale = tables.scales
        scale = torch.ones(1) if scale is None else scale.float()
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
    tables = Tables.of(plan, rows)
    scaled = tables.scales is not None
    if axes is None or scaled:
        module: Rows | RowsOfAxes = (ScaledRows if scaled else Rows)(tables, head_size, neox, dtype)
    else:
        tables = Tables.of(plan, rows, axes.positions_factor)
        module = RowsOfAxes(tables, head_size, neox, dtype, axes)
    if plan.shorter:
        module.hold(tables.starts[:-1], _most_tokens())
    return module


def _most_tokens() -> int:
    """Tokens of a step, padded as a recorded one is."""
    config = get_current_vllm_config()
    recorded: int = config.compilation_config.max_cudagraph_capture_size or 0
    most: int = max(config.scheduler_config.max_num_batched_tokens, recorded)
    return most


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
        return torch.cat([(torch.cat([x.cos(), x.sin()], -1) * rotary.amplitude).to(dtype) for x in angles])
