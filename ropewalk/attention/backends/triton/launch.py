"""Attention over spans in one kernel: how the kernels are launched, and which texts they carry.

Queries, keys and values go in as they are and no turned copy of them is made. The kernels run on CUDA; they are tested
in triton's interpreter (TRITON_INTERPRET=1), and nothing here has been measured on a GPU.

Legend: b batch, h query head, g key head, i query, j key, d head dimension, s strand, x whole distance.
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

from ropewalk.attention.backends.triton.segment_tables import SegmentTables, bounds, rotates, segment_tables
from ropewalk.attention.layout.segments import Segment
from ropewalk.attention.layout.tile_ranges import key_tile_ranges, row_tile_ranges
from ropewalk.attention.problem import Problem
from ropewalk.attention.torch_kernels.matmul import PartialAttention
from ropewalk.attention.torch_kernels.softmax import by_sinks, with_sinks

TYPES = (torch.float32, torch.bfloat16, torch.float16)
LARGEST_HEAD = 128
LONGEST_LINE = 2**20  # numbers in a head's line of biases
MOST_STRANDS = 64  # each costs four numbers for every token
LARGEST_GROWTH = 80.0  # what exp bears in float32, with room for the vectors themselves
NARROWEST = 16  # columns of a tile that a GPU multiplies
LOG2E = math.log2(math.e)

# The sum of the biases at whole distances, [heads, distances].
BiasAt = Callable[[Tensor], Tensor]


class StridedVectors(NamedTuple):
    """[b, heads, tokens, d] as the kernels take it; a vector's numbers are neighbours."""

    at: Tensor
    batch: int
    head: int
    token: int


class StridedNumbers(NamedTuple):
    """[b, heads, n] likewise; a step of 0 where all share."""

    at: Tensor
    batch: int
    head: int


class Columns(NamedTuple):
    """Some columns of a vector, and how wide a tile holds them."""

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
    still: Columns
    values: Columns
    members: int  # query heads of a key head
    q_turns: bool
    k_turns: bool
    biased: bool


class KernelLengths(NamedTuple):
    """What it is not compiled for."""

    strands: int
    queries: int
    keys: int


class KernelInputs(NamedTuple):
    """The tensors that attention is a function of; factors and lines are those of logits in powers of two."""

    q_bhid: Tensor
    k_bgjd: Tensor
    v_bgjd: Tensor
    factor_hi: Tensor
    line_hx: Tensor | None


class Launch(NamedTuple):
    """How a kernel is cut up: a program's rows and keys, its warps, how many tiles it loads ahead."""

    rows: int
    keys: int
    warps: int
    stages: int


class Launches(NamedTuple):
    """One for each kernel."""

    forward: Launch
    backward_queries: Launch
    backward_keys: Launch


# By the largest head. Turning takes registers: tiles are smaller where it is done.
HALF_STILL = {
    64: Launches(Launch(128, 64, 8, 2), Launch(64, 64, 4, 2), Launch(32, 128, 8, 1)),
    128: Launches(Launch(128, 64, 8, 2), Launch(64, 64, 8, 2), Launch(64, 32, 8, 1)),
}
HALF_TURNING = {
    64: Launches(Launch(128, 32, 8, 2), Launch(64, 32, 8, 2), Launch(64, 16, 8, 1)),
    128: Launches(Launch(64, 32, 8, 2), Launch(32, 64, 8, 2), Launch(64, 32, 8, 1)),
}
SINGLE = Launches(Launch(64, 32, 8, 1), Launch(32, 32, 8, 1), Launch(32, 32, 8, 1))


class LaunchPlan(NamedTuple):
    """What a text's attention needs beside its numbers."""

    spans: SegmentTables
    start: Tensor
    stop: Tensor
    turns: list[tuple[bool, bool]]  # whether each strand turns queries, and keys
    furthest: int
    pairs: int
    interleaved: bool
    launches: Launches


def why_not(case: Problem) -> str | None:
    """Why the kernels do not carry the case, or nothing."""
    strands, biases = case.strands, case.extension.biases
    largest = max(case.head_dim, case.value_dim)
    whys = {
        "triton is not installed": importlib.util.find_spec("triton") is None,
        "no query sees a key": not strands,
        "the keys come turned already": not case.fresh,
        f"its kernel puts no cap on logits (softcap {case.softcap or 0:g})": case.softcap is not None,
        f"it does not compute in {str(case.dtype)[6:]}": case.dtype not in TYPES,
        f"heads of {largest} are beyond {LARGEST_HEAD}": largest > LARGEST_HEAD,
        f"{len(strands)} tables and spans are beyond {MOST_STRANDS}": len(strands) > MOST_STRANDS,
        "the decay grows beyond float32": max((each.growth for each in strands), default=0.0) > LARGEST_GROWTH,
        f"what the bias has learned wants a gradient ({case.biases})": bool(biases) and case.learning,
        f"the bias is not one of the distance alone ({case.biases})": not all(b.of_distance_alone for b in biases),
        f"the reach shows the bias broken distances ({case.biases})": bool(biases) and not _whole(strands),
        f"the distances spread beyond {LONGEST_LINE:,} ({case.biases})": bool(biases) and _far(strands),
    }
    return next((f"triton: {why}" for why, so in whys.items() if so), None)


def _far(strands: Sequence[Segment]) -> bool:
    return furthest(strands) >= LONGEST_LINE


def furthest(strands: Sequence[Segment]) -> int:
    """No distance that is shown is larger."""
    return max(
        (int(each.q_at.max() - each.k_at[int(each.start.min()) : int(each.stop.max())].min()) for each in strands),
        default=0,
    )


def _whole(strands: Sequence[Segment]) -> bool:
    return all(bool((at == at.round()).all()) for each in strands for at in (each.q_at, each.k_at))


def plan_for(strands: Sequence[Segment], q_bhid: Tensor, v_bgjd: Tensor, interleaved: bool) -> LaunchPlan:
    """All that is settled by positions alone: the same for every layer of a model and every step over equal texts."""
    turns = [rotates(strand) for strand in strands]
    return LaunchPlan(
        segment_tables(strands, q_bhid.shape[2], q_bhid.device),
        *bounds(strands, q_bhid.shape[2]),
        turns,
        furthest(strands),
        len(strands[0].table.inv_freq),
        interleaved,
        launches(max(q_bhid.shape[-1], v_bgjd.shape[-1]), q_bhid.dtype, any(map(any, turns))),
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
    """The attention of all strands together, on queries and keys that have not been turned or scaled."""
    line_hx = None
    if bias_at is not None:
        distance = torch.arange(plan.furthest + 1, device=q_bhid.device)
        line_hx = (bias_at(distance).detach() * LOG2E).float().contiguous()
    factor_hi = (scale_hi.to(q_bhid.device) / math.sqrt(q_bhid.shape[-1])).float()
    given = (q_bhid, k_bgjd, v_bgjd, factor_hi, line_hx, sink_h, plan)
    out: Tensor = TritonFunction.apply(*given)  # type: ignore[no-untyped-call]
    return out


def launches(head_dim: int, dtype: torch.dtype, turns: bool) -> Launches:
    """In half precision the largest for which ptxas spills next to nothing, on sm_80 as on sm_90; never timed."""
    if dtype == torch.float32:
        return SINGLE
    table = HALF_TURNING if turns else HALF_STILL
    return table[min(size for size in table if size >= head_dim)]


class TritonFunction(torch.autograd.Function):
    """One kernel forward; backward two for each strand, one for queries and one for keys and values."""

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
        """The answer; the logarithm of what it was divided by is kept."""
        out = torch.empty(*q_bhid.shape[:3], v_bgjd.shape[-1], dtype=v_bgjd.dtype, device=v_bgjd.device)
        lse = torch.empty(q_bhid.shape[:3], dtype=torch.float32, device=q_bhid.device)
        given, launch = KernelInputs(q_bhid, k_bgjd, v_bgjd, factor_hi * LOG2E, line_hx), plan.launches.forward
        shape = _shape(launch, given, plan, *(any(each) for each in zip(*plan.turns, strict=True)))
        _launch("forward", launch, _walks_of_queries(launch, plan), shape, given, plan, _vectors(out), _numbers(lse))
        if sink_h is not None:
            out, natural = with_sinks(PartialAttention(out, lse / LOG2E), sink_h)
            lse = natural * LOG2E
        ctx.save_for_backward(*given, out, lse, sink_h)
        ctx.plan = plan
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of queries, keys, values, factors and, where they want one, of sinks."""
        *tensors, out, lse, sink_h = ctx.saved_tensors
        given, plan = KernelInputs(*tensors), ctx.plan
        inputs = given.q_bhid, given.k_bgjd, given.v_bgjd
        by_q, by_k, by_v = (_sums(x, len(plan.turns)) for x in inputs)
        by_factor = torch.zeros_like(lse)
        delta = (grads[0].float() * out.float()).sum(-1)
        slope = _vectors(grads[0]), _numbers(lse), _numbers(delta)
        of_queries = "backward_queries", plan.launches.backward_queries, (_vectors(by_q), _numbers(by_factor))
        of_keys = "backward_keys", plan.launches.backward_keys, (_vectors(by_k), _vectors(by_v))
        for (name, launch, own), walks_of in ((of_queries, _walks_of_queries), (of_keys, _walks_of_keys)):
            walks = walks_of(launch, plan)
            for s, turns in enumerate(plan.turns):
                _launch(name, launch, walks, _shape(launch, given, plan, *turns), given, plan, s, *slope, *own)
        by_q, by_k, by_v = (x.to(own.dtype) for x, own in zip((by_q, by_k, by_v), inputs, strict=True))
        by_sink = by_sinks(grads[0], PartialAttention(out, lse / LOG2E), sink_h) if ctx.needs_input_grad[5] else None
        return by_q, by_k, by_v, by_factor.sum(0).sum_to_size(given.factor_hi.shape), None, by_sink, None


def _sums(x: Tensor, strands: int) -> Tensor:
    """Zeros for a gradient, wide enough to be added to more than once."""
    return torch.zeros(x.shape, dtype=x.dtype if strands == 1 else torch.float32, device=x.device)


def _walks_of_queries(launch: Launch, plan: LaunchPlan) -> Tensor:
    """Of every block of queries in every strand."""
    bounds, device = zip(plan.start, plan.stop, strict=True), plan.spans.start.device
    walks = [key_tile_ranges(start, stop, launch.rows, launch.keys) for start, stop in bounds]
    return torch.stack(walks).to(device, torch.int32)


def _walks_of_keys(launch: Launch, plan: LaunchPlan) -> Tensor:
    """Of every block of keys in every strand."""
    bounds, device = zip(plan.start, plan.stop, strict=True), plan.spans.start.device
    keys = plan.spans.k_at.shape[1]
    walks = [row_tile_ranges(start, stop, launch.rows, launch.keys, keys) for start, stop in bounds]
    return torch.stack(walks).to(device, torch.int32)


def _launch(
    name: str,
    launch: Launch,
    walks: Tensor,
    shape: KernelShape,
    given: KernelInputs,
    plan: LaunchPlan,
    *own: StridedVectors | StridedNumbers | int,
) -> None:
    """Run a kernel: a program for each walk of each head. Imported here, since triton may be missing."""
    q_bhid, k_bgjd, v_bgjd, factor_hi, line_hx = given
    heads = q_bhid.shape[1] // (shape.members if name == "backward_keys" else 1)
    grid = (walks.shape[1], heads, len(q_bhid))
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
            walks,
            KernelLengths(len(walks), q_bhid.shape[2], k_bgjd.shape[2]),
            *own,
            shape,
            num_warps=launch.warps,
            num_stages=launch.stages,
        )


def _shape(launch: Launch, given: KernelInputs, plan: LaunchPlan, q_turns: bool, k_turns: bool) -> KernelShape:
    pairs, rest = plan.pairs, given.q_bhid.shape[-1] - 2 * plan.pairs
    step, apart = (2, 1) if plan.interleaved else (1, pairs)
    return KernelShape(
        launch.rows,
        launch.keys,
        firsts=_columns(0, step, pairs),
        seconds=_columns(apart, step, pairs),
        still=_columns(2 * pairs, 1, rest),
        values=_columns(0, 1, given.v_bgjd.shape[-1]),
        members=given.q_bhid.shape[1] // given.k_bgjd.shape[1],
        q_turns=q_turns,
        k_turns=k_turns,
        biased=given.line_hx is not None,
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
    """The same in every batch row, and for all heads where there is but one."""
    return StridedNumbers(x_hn.contiguous(), 0, x_hn.shape[1] if len(x_hn) > 1 else 0)
