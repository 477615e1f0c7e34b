"""Attention by FlexAttention, which torch compiles to a kernel with our masks and biases. For CUDA.

One call for each segment, on its rotated queries and keys, over the blocks that its rows see. The outputs are merged by
their log-sum-exp, which autograd can follow. A bias of the distance alone is read from a line of numbers, whose
gradient reaches the numbers that the bias learned.

Uncompiled, FlexAttention stores every query-key pair. That never happens here: a call that torch does not compile is an
error, whatever the cause.

Legend: b batch, h query head, g key head, s segment, i query, j key, d head dimension, x index in a line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import AuxRequest, BlockMask, flex_attention

from ropewalk.attention.backends.backend import Backend
from ropewalk.attention.layout.block_lists import FLEX_BLOCK, BlockLists, block_lists
from ropewalk.attention.layout.segments import Segment, distance_line
from ropewalk.attention.problem import AttentionInputs, BiasAt, Problem
from ropewalk.attention.rotation.rotate import RotatedCopies, SegmentInputs, compute_dtype
from ropewalk.attention.torch_kernels.softmax import PartialAttention, merge_parts
from ropewalk.errors import DoesNotFit

SMALLEST_HEAD = 16  # of FlexAttention's kernels
KINDS = 64  # of compiled calls: with and without gradients, bias, a second segment; counts and sizes of heads


def why_not(problem: Problem) -> str | None:
    """Why this backend does not support a problem, or nothing."""
    if problem.device.type != "cuda":
        return f"FlexAttention is compiled for cuda only, not for {problem.device.type}"
    if problem.dtype == torch.float64:
        return "FlexAttention has no float64"
    if min(problem.head_dim, problem.value_dim) < SMALLEST_HEAD:
        return f"FlexAttention needs heads of at least {SMALLEST_HEAD} numbers"
    if not all(spec.of_distance_alone for spec in problem.extension.biases):
        return f"the bias depends on more than the distance ({problem.biases})"
    if problem.extension.biases and any(distance_line(segment) is None for segment in problem.segments):
        return f"the effective distances are not evenly spaced on a short line ({problem.biases})"
    if problem.learning and torch.are_deterministic_algorithms_enabled():
        return f"FlexAttention sums the gradient of a bias in no fixed order ({problem.biases})"
    return None if find_spec("triton") else "FlexAttention cannot be compiled without Triton"


def why(problem: Problem) -> str:
    """What this backend does with a problem."""
    calls = f"{len(problem.segments)} compiled call{'s' * (len(problem.segments) > 1)} of FlexAttention"
    return f"{calls}, the bias read from a line of numbers ({problem.biases})" if problem.extension.biases else calls


def flex(
    copies: RotatedCopies,
    segments: Sequence[Segment],
    bias_at: BiasAt | None,
    softcap: float | None = None,
    sink_h: Tensor | None = None,
) -> Tensor:
    """The attention of all segments together."""
    pairs = list(zip(segments, copies.jobs, strict=True))
    outputs, done = [], 0
    for first in sorted({segment.rows.start for segment in segments}):
        of_rows = [(segment, job) for segment, job in pairs if segment.rows.start == first]
        merged = len(of_rows) > 1 or sink_h is not None
        parts = [_segment(copies, job, segment, bias_at, softcap, merged=merged) for segment, job in of_rows]
        outputs += [_zeros(copies, first - done), _merge(parts, sink_h)]
        done = of_rows[0][0].rows.stop
    return torch.cat([*outputs, _zeros(copies, copies.q[0].shape[2] - done)], 2)


class SegmentOutput(NamedTuple):
    """The output of a segment, and its log-sum-exp where there is something to merge it with."""

    out_bhid: Tensor
    lse_bhi: Tensor | None


def _segment(
    copies: RotatedCopies,
    job: SegmentInputs,
    segment: Segment,
    bias_at: BiasAt | None,
    softcap: float | None,
    *,
    merged: bool,
) -> SegmentOutput:
    """One call of the compiled kernel."""
    # Contiguous, because every other layout in memory would be compiled separately.
    q_bhid, k_bgjd, v_bgjd = copies.q[job.q][:, :, segment.rows].contiguous(), copies.k[job.k], copies.v[job.v]
    device = q_bhid.device
    bounds = [bound.int().to(device) for bound in (segment.start, segment.stop)]
    lists = BlockLists(*(tensor.to(device) for tensor in block_lists(segment.start, segment.stop, k_bgjd.shape[2])))
    bias = None if bias_at is None else _bias(segment, bias_at, q_bhid)
    cap = None if softcap is None else torch.full((), softcap, device=device)  # a number would be compiled in
    return SegmentOutput(*_compiled_call(q_bhid, k_bgjd, v_bgjd, *bounds, lists, bias, cap, merged))


def _bias(segment: Segment, bias_at: BiasAt, like: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The bias of each head along the segment's line, and the numbers whose difference is a pair's index in it."""
    line = distance_line(segment)
    if line is None:
        raise DoesNotFit("the effective distances of a bias", "evenly spaced on a short line", segment.span)
    line_hx = bias_at(line.distance.to(like.device)).to(compute_dtype(like.dtype))
    return line_hx, line.x_i.int().to(like.device), line.y_j.int().to(like.device)


def _compiled_call(*arguments: object) -> tuple[Tensor, Tensor | None]:
    from torch._dynamo.exc import FailOnRecompileLimitHit  # which loads the compiler

    try:
        return compile_call()(*arguments)
    except FailOnRecompileLimitHit as limit:
        raise _refusal(f"{KINDS} kinds of calls already") from limit


@cache
def compile_call() -> Callable[..., tuple[Tensor, Tensor | None]]:
    """The call, compiled once for all lengths. A graph break or a full recompile limit is an error."""
    limits = {"recompile_limit": KINDS, "isolate_recompiles": True}
    return torch.compile(require_compiling, dynamic=True, fullgraph=True, **limits)  # type: ignore[call-overload, no-any-return]


def require_compiling(*arguments: Any) -> tuple[Tensor, Tensor | None]:
    """The call, and an error where torch would run it uncompiled, which it may do without a warning."""
    if not torch.compiler.is_compiling():
        raise _refusal("a torch that does not compile (it is disabled, or its stance is eager)")
    return call(*arguments)


def call(
    q_bhid: Tensor,
    k_bgjd: Tensor,
    v_bgjd: Tensor,
    start_i: Tensor,
    stop_i: Tensor,
    lists: BlockLists,
    bias: tuple[Tensor, Tensor, Tensor] | None,
    cap: Tensor | None,
    merged: bool,
) -> tuple[Tensor, Tensor | None]:
    """What is compiled: one graph for every reach and every bias, which differ in numbers only."""

    def inside(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return (start_i[i] <= j) & (j < stop_i[i])

    mask = BlockMask((q_bhid.shape[2], k_bgjd.shape[2]), *lists, BLOCK_SIZE=(FLEX_BLOCK, FLEX_BLOCK), mask_mod=inside)
    out, aux = flex_attention(
        *(q_bhid, k_bgjd, v_bgjd),
        score_mod=_score_function(bias, cap),
        block_mask=mask,
        enable_gqa=True,
        kernel_options={"BACKEND": "TRITON"},  # for few queries too: other kernels have no gradient of the lse
        return_aux=AuxRequest(lse=merged),
    )
    return out, aux.lse


def _score_function(bias: tuple[Tensor, Tensor, Tensor] | None, cap: Tensor | None) -> Callable[..., Tensor] | None:
    """What is done to a scaled product: the bias is added, then the cap is applied."""
    if bias is None and cap is None:
        return None

    def scored(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        if bias is not None:
            line_hx, x_i, y_j = bias
            score = score + line_hx[h, (x_i[i] - y_j[j]).clamp(min=0)]
        return score if cap is None else cap * torch.tanh(score / cap)

    return scored


def _merge(parts: Sequence[SegmentOutput], sink_h: Tensor | None) -> Tensor:
    if len(parts) == 1 and sink_h is None:  # its log-sum-exp was not computed
        return parts[0].out_bhid
    return merge_parts([PartialAttention(out, lse) for out, lse in parts if lse is not None], sink_h)


def _zeros(copies: RotatedCopies, rows: int) -> Tensor:
    """The output of rows that see nothing."""
    return copies.q[0].new_zeros(*copies.q[0].shape[:2], rows, copies.v[0].shape[-1])


def _refusal(got: str) -> DoesNotFit:
    return DoesNotFit(
        "attention by FlexAttention",
        f"compiled, in at most {KINDS} kinds (uncompiled it stores every query-key pair)",
        got,
        remedy="let torch compile, or use fewer shapes of heads in one process",
    )


def _run(inputs: AttentionInputs) -> Tensor:
    problem = inputs.problem
    return flex(inputs.rotated_copies(), problem.segments, inputs.bias_at, problem.softcap, inputs.sink_h)


FLEX = Backend("flex", why_not, why, _run)
