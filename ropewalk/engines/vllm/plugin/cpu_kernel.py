"""vLLM's attention kernel for CPUs, as ropewalk.attention.paged.kernel_layer asks a kernel.

It reads pages in a layout that it writes itself, which depends on the machine (AMX, AVX, ...), and returns no sums.
Both are learned from what it does:

    layout   numbered vectors are stored, and their numbers looked up
    sums     each query is computed twice, once beside a sink whose logit s is known:
             out' / out = z / (z + e^s), so log z = s + log(r / (1 - r)) with r that quotient

The second copy is hardly noticed: a kernel that reads a key for one row of queries multiplies it by sixteen at once.

Source: vLLM 0.32, v1/attention/backends/cpu_attn.py and csrc/cpu/cpu_attn_impl.hpp.

Legend: t token, h query head, g key head, k query heads of one key head, d head dimension, n page, s token of a page.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad
from vllm import _custom_ops as ops
from vllm.platforms import current_platform
from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend, _get_attn_isa

from ropewalk.attention.paged import PagedLayer
from ropewalk.attention.paged.kernel_layer import ROWS, KernelLayer, SpanCall, windows_of
from ropewalk.methods.facts import Facts

LEVEL = 40.0  # the logit of a sink: far above most sums, so that r is small, and its quotient exact
QUOTIENT_FLOOR, QUOTIENT_CEILING = 1e-26, 0.5  # of r: beyond them it is rounded too much, and another level is tried
LEVELS = 4  # levels that are tried
PADDING = 16  # sinks that the kernel may read beyond the last one
TOGETHER = 16  # heads that it computes at once: a number that divides it is no slower
SCALES = {"k_scale": 1.0, "v_scale": 1.0, "kv_cache_dtype": "auto"}  # of quantised caches


class PlannedCall(NamedTuple):
    """A call, planned by vLLM for all layers."""

    call: SpanCall
    heads: int  # query heads of one key head, with those that are repeated
    scheduled: Tensor


@lru_cache(maxsize=256)
def by_kernel(paged: PagedLayer, size: int, dtype: torch.dtype) -> PagedLayer:
    """The same layer by vLLM's kernel where that computes such pages."""
    if isinstance(paged, KernelLayer):
        return paged
    facts = paged.terms.facts
    fits = facts.head_dim in CPUAttentionBackend.get_supported_head_sizes() and size % 32 == 0
    known = dtype in (torch.bfloat16, torch.float32)  # float16 has no room for the quotient of two outputs
    if not (current_platform.is_cpu() and fits and known) or windows_of(paged.terms) is None:
        return paged
    return KernelLayer(paged.terms, CpuKernel(facts, size, dtype))


class CpuKernel:
    """The kernel for layers with these heads, over pages of one size and type."""

    def __init__(self, facts: Facts, size: int, dtype: torch.dtype) -> None:
        self.facts, self.dtype, self.groups = facts, dtype, facts.groups
        self.shared = facts.heads // facts.groups
        self.isa = _get_attn_isa(dtype, size, facts.head_dim, "auto")
        self.sums_chunks = self.isa == "amx"
        self.orders = [_order(size, facts.head_dim, dtype, self.isa, values) for values in (False, True)]
        self.inverse = torch.argsort(self.orders[0])
        self._levels: dict[int, float] = {}  # by the layer's pages
        self._positions = torch.arange(0)

    def store(self, pages: Tensor, lane: int, k_tgd: Tensor, v_tgd: Tensor, slot_t: Tensor) -> None:
        """Keys into a lane, values into the last one."""
        into = (pages.select(2, lane), pages.select(2, -1))
        ops.cpu_attn_reshape_and_cache(k_tgd, v_tgd, *into, slot_t, self.isa, **SCALES)

    def rotated(self, x_thd: Tensor, cos_sin_t: Tensor) -> Tensor:
        """Vectors rotated by vLLM's kernel, in float32: its rotary modules round cosines and sines, and ours do not."""
        if len(self._positions) != len(x_thd):
            self._positions = torch.arange(len(x_thd))
        wide_thd = x_thd.to(torch.float32, copy=True, memory_format=torch.contiguous_format)
        neox = not self.facts.interleaved
        ops.rotary_embedding(self._positions, wide_thd.flatten(1), None, self.facts.head_dim, cos_sin_t, neox)
        return wide_thd.to(x_thd.dtype)

    def plan(self, call: SpanCall, *, summed: bool) -> PlannedCall:
        """vLLM's own plan of a call."""
        heads = 2 * self.shared if summed else self.shared
        heads = _at_once(heads) if call.longest == 1 else heads
        scheduled = ops.cpu_attn_get_scheduler_metadata(
            num_reqs=len(call.stops),
            num_heads=self.groups * heads,
            num_kv_heads=self.groups,
            head_dim=self.facts.head_dim,
            seq_lens=call.stops,
            dtype=self.dtype,
            query_start_loc=call.starts,
            causal=True,
            sliding_window_size=-1 if call.window is None else call.window,
            isa=self.isa,
            enable_kv_split=heads <= TOGETHER,
        )
        return PlannedCall(call._replace(table=call.table.int()), heads, scheduled)

    def queries(self, q_thd: Tensor, cos_sin_t: Tensor | None, plan: PlannedCall) -> Tensor:
        """Rotated queries, with the heads of a key head repeated as often as a call needs."""
        if plan.heads == self.shared:
            return q_thd if cos_sin_t is None else self.rotated(q_thd, cos_sin_t)
        q_tgkd = q_thd.unflatten(1, (self.groups, -1))  # type: ignore[no-untyped-call]
        wide_thd: Tensor = q_tgkd.index_select(2, _repeats(self.shared, plan.heads)).flatten(1, 2)
        return wide_thd if cos_sin_t is None else self.rotated(wide_thd, cos_sin_t)

    def attend(self, pages: Tensor, lane: int, queries: Tensor, plan: PlannedCall, sink_h: Tensor | None) -> Tensor:
        """The output of a call."""
        sink = None if sink_h is None else self._widened(sink_h.float().view(self.groups, -1), plan.heads)
        out_thd = torch.empty_like(queries)
        self._call(pages, lane, queries, plan, sink, out_thd)
        if plan.heads == self.shared:
            return out_thd
        return out_thd.unflatten(1, (self.groups, -1))[:, :, : self.shared].flatten(1, 2)  # type: ignore[no-untyped-call, no-any-return]

    def attend_summed(
        self, pages: Tensor, calls: Sequence[tuple[int, Tensor, PlannedCall]]
    ) -> tuple[Tensor, Tensor] | None:
        """Outputs and logarithms of sums of calls."""
        out_mthd = torch.empty(len(calls), *calls[0][1].shape, dtype=self.dtype)
        level = self._levels.get(pages.data_ptr(), LEVEL)
        for _ in range(LEVELS):
            for (lane, queries, plan), out_thd in zip(calls, out_mthd, strict=True):
                sink = _sinks(self.groups, self.shared, plan.heads, level)
                self._call(pages, lane, queries, plan, sink, out_thd)
            blocks = torch.split(out_mthd, ROWS, 1) if out_mthd.shape[1] > ROWS else (out_mthd,)
            parts = [self._quotient(block) for block in blocks]
            quotient = parts[0] if len(parts) == 1 else torch.cat(parts, 1)
            least, most = (float(x) for x in quotient.aminmax())
            if least > QUOTIENT_FLOOR and most < QUOTIENT_CEILING:
                return self._by_group(out_mthd)[..., : self.shared, :].flatten(2, 3), level + torch.logit(quotient)
            if (least <= QUOTIENT_FLOOR) == (most >= QUOTIENT_CEILING):  # both, or not a number
                return None
            level += LEVEL if most >= QUOTIENT_CEILING else -LEVEL
            self._levels[pages.data_ptr()] = level
        return None

    def _quotient(self, out_mthd: Tensor) -> Tensor:
        """How many times smaller outputs are beside the sink, [m, t, h]."""
        out_mtgkd = self._by_group(out_mthd).float()
        alone, beside = out_mtgkd[..., : self.shared, :], out_mtgkd[..., self.shared : 2 * self.shared, :]
        quotient_mth: Tensor = (torch.linalg.vecdot(alone, beside) / torch.linalg.vecdot(alone, alone)).flatten(2)
        return quotient_mth

    def _by_group(self, x_mthd: Tensor) -> Tensor:
        by_group: Tensor = x_mthd.unflatten(2, (self.groups, -1))  # type: ignore[no-untyped-call]
        return by_group

    def unpacked(self, lane_ngsd: Tensor, *, values: bool) -> Tensor:
        """Pages of a lane with a vector a token, in order."""
        return lane_ngsd.flatten(2).index_select(2, self.orders[values]).view(lane_ngsd.shape)

    def packed(self, lane_ngsd: Tensor) -> Tensor:
        """The inverse for keys."""
        return lane_ngsd.flatten(2).index_select(2, self.inverse).view(lane_ngsd.shape)

    def _call(
        self, pages: Tensor, lane: int, queries: Tensor, plan: PlannedCall, sink: Tensor | None, out_thd: Tensor
    ) -> None:
        starts, stops, table, window, _ = plan.call
        ops.cpu_attention_with_kv_cache(
            query=queries,
            key_cache=pages.select(2, lane),
            value_cache=pages.select(2, -1),
            output=out_thd,
            query_start_loc=starts,
            seq_lens=stops,
            scale=self.facts.head_dim**-0.5,
            causal=True,
            alibi_slopes=None,
            sliding_window=-1 if window is None else window,
            block_table=table,
            softcap=self.facts.softcap or 0.0,
            scheduler_metadata=plan.scheduled,
            s_aux=sink,
            **SCALES,
        )

    def _widened(self, sink_gk: Tensor, heads: int) -> Tensor:
        """Sinks for repeated heads, with room behind them."""
        return pad(sink_gk.index_select(1, _repeats(self.shared, heads)).flatten(), (0, PADDING))


def _at_once(heads: int) -> int:
    """So many heads or a few more, which the kernel computes for one reading of the keys."""
    return next((n for n in (1, 2, 4, 8, TOGETHER) if n >= heads), heads)


@cache
def _repeats(shared: int, heads: int) -> Tensor:
    return torch.arange(heads) % shared


@lru_cache(maxsize=64)
def _sinks(groups: int, shared: int, heads: int, level: float) -> Tensor:
    """No sink for the first copy of the queries, and one for the second."""
    sink_k = torch.full((heads,), -torch.inf)
    sink_k[shared : 2 * shared] = level
    return pad(sink_k.repeat(groups), (0, PADDING))


@cache
def _order(size: int, head_dim: int, dtype: torch.dtype, isa: str, values: bool) -> Tensor:
    """Where each number of a page stands in the kernel's layout, [tokens * dimensions]."""
    bits = torch.int16 if dtype == torch.bfloat16 else torch.int32
    token_sd = torch.arange(size)[:, None].expand(size, head_dim)
    dim_sd = torch.arange(head_dim).expand(size, head_dim)
    stored = []
    for numbers in (token_sd, dim_sd):
        x_tgd = numbers.to(bits).view(dtype)[:, None].contiguous()
        page = torch.zeros(2, 1, 1, size, head_dim, dtype=dtype)
        ops.cpu_attn_reshape_and_cache(x_tgd, x_tgd, page[0], page[1], torch.arange(size), isa, **SCALES)
        stored.append(page[int(values)].view(bits).flatten().long())
    return torch.argsort(stored[0] * head_dim + stored[1])
