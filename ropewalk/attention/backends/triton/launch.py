"""Attention over all spans in one kernel: how the kernels are launched, and which problems they support.

Queries, keys and values go in as they are; no rotated copy is made. The kernels run on CUDA. They are tested in
triton's interpreter (TRITON_INTERPRET=1), and nothing here has been measured on a GPU.

Legend: b batch, h query head, g key head, i query, j key, d head dimension, s segment, x whole distance.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ropewalk.attention.backends.backend import Backend
from ropewalk.attention.backends.triton.segment_tables import (
    SegmentTables,
    rotation_flags,
    segment_bounds,
    segment_tables,
)
from ropewalk.attention.backends.triton.tile_sizes import Launch as Launch, Launches as Launches, device_name, launches
from ropewalk.attention.layout.segments import Segment
from ropewalk.attention.layout.shared import once
from ropewalk.attention.layout.tile_ranges import key_tile_ranges, row_tile_ranges
from ropewalk.attention.problem import AttentionInputs, BiasAt, Problem
from ropewalk.attention.torch_kernels.matmul import PartialAttention
from ropewalk.attention.torch_kernels.softmax import by_sinks, with_sinks

TYPES = (torch.float32, torch.bfloat16, torch.float16)
LARGEST_HEAD = 128
LONGEST_LINE = 2**20  # numbers in a head's line of biases
MOST_SEGMENTS = 64  # each costs four numbers for every token
LARGEST_GROWTH = 80.0  # the exponent that float32 takes, with room for the vectors themselves
MOST_ROWS = 65_535  # of a batch in a launch: the most that the second and third axis of a grid have
NARROWEST = 16  # columns of a tile that a GPU multiplies
LOG2E = math.log2(math.e)


class StridedVectors(NamedTuple):
    """[b, heads, tokens, d] as the kernels take it; a vector's numbers are adjacent in memory."""

    at: Tensor
    batch: int
    head: int
    token: int


class StridedNumbers(NamedTuple):
    """[b, heads, n] likewise; a stride of 0 where all share."""

    at: Tensor
    batch: int
    head: int


class Columns(NamedTuple):
    """Some columns of a vector, and the width of the tile that holds them."""

    begin: int
    step: int
    size: int
    wide: int


class KernelShape(NamedTuple):
    """What a kernel is compiled for."""

    rows: int
    keys: int
    firsts: Columns  # of the pairs
    seconds: Columns
    unrotated: Columns
    values: Columns
    members: int  # query heads of a key head
    q_rotates: bool
    k_rotates: bool
    biased: bool


class KernelLengths(NamedTuple):
    """Lengths, for which it is not compiled."""

    segments: int
    queries: int
    keys: int


class KernelInputs(NamedTuple):
    """The tensors that attention is a function of; factors and lines are for logits in powers of two."""

    q_bhid: Tensor
    k_bgjd: Tensor
    v_bgjd: Tensor
    factor_hi: Tensor
    line_hx: Tensor | None


class LaunchPlan(NamedTuple):
    """What depends on positions alone."""

    spans: SegmentTables
    start: Tensor
    stop: Tensor
    rotates: list[tuple[bool, bool]]  # whether each segment rotates queries, and keys
    furthest: int
    pairs: int
    interleaved: bool
    launches: Launches
    ranges: dict[tuple[str, int, int], Tensor]  # the tile ranges that were needed so far, by axis and sizes of tiles


def why_not(problem: Problem) -> str | None:
    """Why this backend does not support a problem, or nothing."""
    segments, biases = problem.segments, problem.extension.biases
    largest = max(problem.head_dim, problem.value_dim)
    whys = {
        "triton is not installed": importlib.util.find_spec("triton") is None,
        "no query sees a key": not segments,
        "the keys are rotated already": not problem.one_key_set,
        "the pairs of a token have several positions": any(one.q_at_pairs is not None for one in segments),
        f"its kernel has no cap on logits (softcap {problem.softcap or 0:g})": problem.softcap is not None,
        "its kernel has no factors of rotated queries": problem.weighted,
        f"it does not compute in {str(problem.dtype)[6:]}": problem.dtype not in TYPES,
        f"heads of {largest} are beyond {LARGEST_HEAD}": largest > LARGEST_HEAD,
        f"{len(segments)} tables and spans are beyond {MOST_SEGMENTS}": len(segments) > MOST_SEGMENTS,
        "the decay grows beyond float32": max((one.growth for one in segments), default=0.0) > LARGEST_GROWTH,
        f"the learned bias needs a gradient ({problem.biases})": bool(biases) and problem.learning,
        f"the bias depends on more than the distance ({problem.biases})": not all(b.of_distance_alone for b in biases),
        f"effective distances are not whole numbers ({problem.biases})": bool(biases) and not _whole(segments),
        f"effective distances exceed {LONGEST_LINE:,} ({problem.biases})": bool(biases) and _far(segments),
    }
    return next((f"triton: {why}" for why, applies in whys.items() if applies), None)


def _far(segments: Sequence[Segment]) -> bool:
    return furthest(segments) >= LONGEST_LINE


def furthest(segments: Sequence[Segment]) -> int:
    """A bound on the effective distances."""
    return max(
        (int(one.q_at.max() - one.k_at[int(one.start.min()) : int(one.stop.max())].min()) for one in segments),
        default=0,
    )


def _whole(segments: Sequence[Segment]) -> bool:
    return all(bool((at == at.round()).all()) for segment in segments for at in (segment.q_at, segment.k_at))


def plan_for(segments: Sequence[Segment], q_bhid: Tensor, v_bgjd: Tensor, interleaved: bool) -> LaunchPlan:
    """What depends on positions alone: the same for every layer of a model and every step over equal sequences."""
    rotates = [rotation_flags(segment) for segment in segments]
    largest = max(q_bhid.shape[-1], v_bgjd.shape[-1])
    return LaunchPlan(
        segment_tables(segments, q_bhid.shape[2], q_bhid.device),
        *segment_bounds(segments, q_bhid.shape[2]),
        rotates,
        furthest(segments),
        len(segments[0].table.inv_freq),
        interleaved,
        launches(largest, q_bhid.dtype, any(map(any, rotates)), device_name(q_bhid.device)),
        {},
    )


def triton_attention(
    q_bhid: Tensor,
    k_bgjd: Tensor,
    v_bgjd: Tensor,
    plan: LaunchPlan,
    scale_hi: Tensor,
    bias_at: BiasAt | None,
    sink_h: Tensor | None = None,
) -> Tensor:
    """The attention of all segments together, on queries and keys that are neither rotated nor scaled."""
    line_hx = None if bias_at is None else bias_line(bias_at, plan, q_bhid.device)
    factor_hi = (scale_hi.to(q_bhid.device) / math.sqrt(q_bhid.shape[-1])).float()
    rows = zip(*(torch.split(x, MOST_ROWS) for x in (q_bhid, k_bgjd, v_bgjd)), strict=True)
    outputs = [TritonFunction.apply(*vectors, factor_hi, line_hx, sink_h, plan) for vectors in rows]  # type: ignore[no-untyped-call]
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs)


def bias_line(bias_at: BiasAt, plan: LaunchPlan, device: torch.device) -> Tensor:
    """The biases of all distances, [heads, distances], for logits in powers of two."""
    return (bias_at(torch.arange(plan.furthest + 1, device=device)).detach() * LOG2E).float().contiguous()


class TritonFunction(torch.autograd.Function):
    """One kernel forward; two backward for each segment, one for queries and one for keys and values."""

    @staticmethod
    def forward(
        ctx: Any,
        q_bhid: Tensor,
        k_bgjd: Tensor,
        v_bgjd: Tensor,
        factor_hi: Tensor,
        line_hx: Tensor | None,
        sink_h: Tensor | None,
        plan: LaunchPlan,
    ) -> Tensor:
        """The output; its log-sum-exp is saved for the backward pass."""
        out = torch.empty(*q_bhid.shape[:3], v_bgjd.shape[-1], dtype=v_bgjd.dtype, device=v_bgjd.device)
        lse = torch.empty(q_bhid.shape[:3], dtype=torch.float32, device=q_bhid.device)
        inputs, launch = KernelInputs(q_bhid, k_bgjd, v_bgjd, factor_hi * LOG2E, line_hx), plan.launches.forward
        shape = _shape(launch, inputs, plan, *(any(flags) for flags in zip(*plan.rotates, strict=True)))
        _launch("forward", launch, _query_ranges(launch, plan), shape, inputs, plan, _vectors(out), _numbers(lse))
        if sink_h is not None:
            out, natural = with_sinks(PartialAttention(out, lse / LOG2E), sink_h)
            lse = natural * LOG2E
        ctx.save_for_backward(*inputs, out, lse, sink_h)
        ctx.plan = plan
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of queries, keys, values, factors and, where they need one, of sinks."""
        *tensors, out, lse, sink_h = ctx.saved_tensors
        inputs, plan = KernelInputs(*tensors), ctx.plan
        vectors = inputs.q_bhid, inputs.k_bgjd, inputs.v_bgjd
        by_q, by_k, by_v = (_sums(x, len(plan.rotates)) for x in vectors)
        by_factor = torch.zeros_like(lse)
        delta = (grads[0].float() * out.float()).sum(-1)
        slope = _vectors(grads[0]), _numbers(lse), _numbers(delta)
        of_queries = "backward_queries", plan.launches.backward_queries, (_vectors(by_q), _numbers(by_factor))
        of_keys = "backward_keys", plan.launches.backward_keys, (_vectors(by_k), _vectors(by_v))
        for (name, launch, sums), ranges_of in ((of_queries, _query_ranges), (of_keys, _key_ranges)):
            ranges = ranges_of(launch, plan)
            for s, flags in enumerate(plan.rotates):
                _launch(name, launch, ranges, _shape(launch, inputs, plan, *flags), inputs, plan, s, *slope, *sums)
        by_q, by_k, by_v = (x.to(like.dtype) for x, like in zip((by_q, by_k, by_v), vectors, strict=True))
        by_sink = by_sinks(grads[0], PartialAttention(out, lse / LOG2E), sink_h) if ctx.needs_input_grad[5] else None
        return by_q, by_k, by_v, by_factor.sum(0).sum_to_size(inputs.factor_hi.shape), None, by_sink, None


def _sums(x: Tensor, segments: int) -> Tensor:
    """Zeros for a gradient, in float32 where several segments add to it."""
    return torch.zeros(x.shape, dtype=x.dtype if segments == 1 else torch.float32, device=x.device)


def _query_ranges(launch: Launch, plan: LaunchPlan) -> Tensor:
    """The tile ranges of every block of queries in every segment."""
    return _ranges("queries", launch, plan, lambda start, stop: key_tile_ranges(start, stop, launch.rows, launch.keys))


def _key_ranges(launch: Launch, plan: LaunchPlan) -> Tensor:
    """The tile ranges of every block of keys in every segment."""
    sizes = launch.rows, launch.keys, plan.spans.k_at.shape[1]
    return _ranges("keys", launch, plan, lambda start, stop: row_tile_ranges(start, stop, *sizes))


def _ranges(of: str, launch: Launch, plan: LaunchPlan, compute: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Computed once for a plan: on the CPU, and copied to the device."""
    key = of, launch.rows, launch.keys
    if key not in plan.ranges:
        ranges = [compute(start, stop) for start, stop in zip(plan.start, plan.stop, strict=True)]
        plan.ranges[key] = torch.stack(ranges).to(plan.spans.start.device, torch.int32)
    return plan.ranges[key]


def _launch(
    name: str,
    launch: Launch,
    ranges: Tensor,
    shape: KernelShape,
    inputs: KernelInputs,
    plan: LaunchPlan,
    *arguments: StridedVectors | StridedNumbers | int,
) -> None:
    """Run a kernel: a program for each tile range of each head. Imported here, since triton may be missing."""
    q_bhid, k_bgjd, v_bgjd, factor_hi, line_hx = inputs
    heads = q_bhid.shape[1] // (shape.members if name == "backward_keys" else 1)
    grid = (ranges.shape[1], heads, len(q_bhid))
    if not all(grid):
        return
    factor = _shared(factor_hi)
    kernel = getattr(importlib.import_module("ropewalk.attention.backends.triton.kernels"), name)
    with torch.cuda.device_of(q_bhid):  # type: ignore[no-untyped-call]
        kernel[grid](
            *(_vectors(x) for x in (q_bhid, k_bgjd, v_bgjd)),
            factor,
            factor if line_hx is None else _shared(line_hx),
            plan.spans,
            ranges,
            KernelLengths(len(ranges), q_bhid.shape[2], k_bgjd.shape[2]),
            *arguments,
            shape,
            num_warps=launch.warps,
            num_stages=launch.stages,
        )


def _shape(launch: Launch, inputs: KernelInputs, plan: LaunchPlan, q_rotates: bool, k_rotates: bool) -> KernelShape:
    pairs, rest = plan.pairs, inputs.q_bhid.shape[-1] - 2 * plan.pairs
    step, apart = (2, 1) if plan.interleaved else (1, pairs)
    return KernelShape(
        launch.rows,
        launch.keys,
        firsts=_columns(0, step, pairs),
        seconds=_columns(apart, step, pairs),
        unrotated=_columns(2 * pairs, 1, rest),
        values=_columns(0, 1, inputs.v_bgjd.shape[-1]),
        members=inputs.q_bhid.shape[1] // inputs.k_bgjd.shape[1],
        q_rotates=q_rotates,
        k_rotates=k_rotates,
        biased=inputs.line_hx is not None,
    )


def _columns(begin: int, step: int, size: int) -> Columns:
    return Columns(begin, step, size, max(NARROWEST, 1 << (size - 1).bit_length()))


def _vectors(x_bhnd: Tensor) -> StridedVectors:
    dense = x_bhnd if x_bhnd.stride(-1) == 1 else x_bhnd.contiguous()
    return StridedVectors(dense, *dense.stride()[:3])


def _numbers(x_bhn: Tensor) -> StridedNumbers:
    dense = x_bhn.contiguous()
    return StridedNumbers(dense, *dense.stride()[:2])


def _shared(x_hn: Tensor) -> StridedNumbers:
    """The same in every batch row, and for all heads where there is only one."""
    return StridedNumbers(x_hn.contiguous(), 0, x_hn.shape[1] if len(x_hn) > 1 else 0)


def _run(inputs: AttentionInputs) -> Tensor:
    k_bgjd, v_bgjd, *_ = inputs.keys[0]
    q_bhid, scale_hid = inputs.q_bhid, inputs.terms.scale(inputs.i)
    if scale_hid.shape[-1] > 1:  # the kernel takes one factor a row
        q_bhid, scale_hid = inputs.terms.scaled(q_bhid, inputs.i), torch.ones_like(scale_hid[..., :1])
    return triton_attention(q_bhid, k_bgjd, v_bgjd, _plan(inputs), scale_hid[..., 0], inputs.bias_at, inputs.sink_h)


def _plan(inputs: AttentionInputs) -> LaunchPlan:
    """The plan, once for all layers that share the segments. It is stored with them: no others then have their id."""
    segments, q_bhid, v_bgjd = inputs.problem.segments, inputs.q_bhid, inputs.keys[0].v_bgjd
    interleaved, largest = inputs.terms.facts.interleaved, max(q_bhid.shape[-1], v_bgjd.shape[-1])

    def compute() -> tuple[Sequence[Segment], LaunchPlan]:
        return segments, plan_for(segments, q_bhid, v_bgjd, interleaved)

    pairs, tokens = len(segments[0].table.inv_freq), q_bhid.shape[2] + len(segments[0].k_at)
    spec = id(segments), q_bhid.shape[2], largest, q_bhid.dtype, str(q_bhid.device), interleaved
    return once("triton plan", spec, (), compute, len(segments) * tokens * 2 * (1 + pairs))[1]


WHY = "one kernel over all spans, which rotates, scales and adds biases itself"
TRITON = Backend("triton", why_not, lambda problem: WHY, _run)
