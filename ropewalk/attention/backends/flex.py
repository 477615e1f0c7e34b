"""Attention by FlexAttention: torch compiles one kernel for what it is told of masks and biases. For CUDA.

One call per strand, on its own turned queries and keys, over the blocks that its rows see; the answers are merged by
their log-sum-exp in ways that autograd knows. A bias of the distance alone is read from a line of numbers, whose
gradient reaches what the bias has learned.

Uncompiled, FlexAttention writes out every pair of a query and a key. That never happens here: what is not compiled is
refused, whatever kept torch from it.

Legend: b batch, h query head, g key head, s strand, i query, j key, d head dimension, x place in a line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import AuxRequest, BlockMask, flex_attention

from ropewalk.attention.layout.block_lists import BLOCK, BlockLists, block_lists
from ropewalk.attention.layout.distances import distance_line
from ropewalk.attention.layout.segments import Segment
from ropewalk.attention.problem import Problem
from ropewalk.attention.rotation.precision import compute_dtype
from ropewalk.attention.rotation.rotated_copies import RotatedCopies
from ropewalk.errors import DoesNotFit

SMALLEST_HEAD = 16  # of FlexAttention's kernels
KINDS = 64  # of calls that are compiled for: with and without gradients, bias, a second strand; head counts and sizes

# The bias at these distances, [heads, distances], float64
BiasAt = Callable[[Tensor], Tensor]


def why_not(case: Problem) -> str | None:
    """Why this way cannot carry the case, or nothing."""
    if case.device.type != "cuda":
        return f"FlexAttention is compiled for cuda alone, not for {case.device.type}"
    if case.dtype == torch.float64:
        return "FlexAttention has no float64"
    if min(case.head_dim, case.value_dim) < SMALLEST_HEAD:
        return f"FlexAttention wants heads of at least {SMALLEST_HEAD} numbers"
    if not all(spec.of_distance_alone for spec in case.extension.biases):
        return f"the bias is not one of the distance alone ({case.biases})"
    if case.extension.biases and any(distance_line(strand) is None for strand in case.strands):
        return f"the distances shown to the bias do not lie evenly ({case.biases})"
    if case.learning and torch.are_deterministic_algorithms_enabled():
        return f"FlexAttention sums the gradient of a bias in no fixed order ({case.biases})"
    return None if find_spec("triton") else "FlexAttention needs Triton to be compiled"


def flex(
    turned: RotatedCopies,
    strands: Sequence[Segment],
    bias_at: BiasAt | None,
    softcap: float | None = None,
    sink_h: Tensor | None = None,
) -> Tensor:
    """The attention of all strands together."""
    pairs = list(zip(strands, turned.jobs, strict=True))
    answers, done = [], 0
    for first in sorted({strand.rows.start for strand in strands}):
        found = [(strand, job) for strand, job in pairs if strand.rows.start == first]
        rows = found[0][0].rows
        # Contiguous, since other steps in memory would be compiled for apart.
        vectors = [(turned.q[job.q][:, :, rows].contiguous(), turned.k[job.k], turned.v[job.v]) for _, job in found]
        parts = [
            _strand(*own, strand, bias_at, softcap, merged=len(found) > 1 or sink_h is not None)
            for own, (strand, _) in zip(vectors, found, strict=True)
        ]
        answers += [_zeros(turned, first - done), _merged(parts, sink_h)]
        done = rows.stop
    return torch.cat([*answers, _zeros(turned, turned.q[0].shape[2] - done)], 2)


class SegmentOutput(NamedTuple):
    """Of one strand; the logarithm of what it was divided by only where there is something to merge it with."""

    out_bhid: Tensor
    lse_bhi: Tensor | None


def _strand(
    q_bhid: Tensor,
    k_bgjd: Tensor,
    v_bgjd: Tensor,
    strand: Segment,
    bias_at: BiasAt | None,
    softcap: float | None,
    *,
    merged: bool,
) -> SegmentOutput:
    """One call of the compiled kernel."""
    device = q_bhid.device
    bounds = [bound.int().to(device) for bound in (strand.start, strand.stop)]
    lists = BlockLists(*(each.to(device) for each in block_lists(strand.start, strand.stop, k_bgjd.shape[2])))
    bias = None if bias_at is None else _bias(strand, bias_at, q_bhid)
    cap = None if softcap is None else torch.full((), softcap, device=device)  # a number would be compiled in
    return SegmentOutput(*_compiled_call(q_bhid, k_bgjd, v_bgjd, *bounds, lists, bias, cap, merged))


def _bias(strand: Segment, bias_at: BiasAt, like: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What a head adds at each place of the strand's line, and whose difference is the place of a pair."""
    found = distance_line(strand)
    if found is None:
        raise DoesNotFit("the distances shown to a bias", "even ones on a short line", strand.span)
    line_hx = bias_at(found.distance.to(like.device)).to(compute_dtype(like.dtype))
    return line_hx, found.x_i.int().to(like.device), found.y_j.int().to(like.device)


def _compiled_call(*given: object) -> tuple[Tensor, Tensor | None]:
    from torch._dynamo.exc import FailOnRecompileLimitHit  # which loads the compiler

    try:
        return compiled()(*given)
    except FailOnRecompileLimitHit as limit:
        raise _refused(f"{KINDS} kinds of calls already") from limit


@cache
def compiled() -> Callable[..., tuple[Tensor, Tensor | None]]:
    """The call, compiled once for all lengths; a graph that breaks or a limit that is hit is an error."""
    limits = {"recompile_limit": KINDS, "isolate_recompiles": True}
    return torch.compile(never_uncompiled, dynamic=True, fullgraph=True, **limits)  # type: ignore[call-overload, no-any-return]


def never_uncompiled(*given: Any) -> tuple[Tensor, Tensor | None]:
    """The call, an error where it runs as it is written: torch has several reasons to do so, and says nothing."""
    if not torch.compiler.is_compiling():
        raise _refused("a torch that compiles nothing (it is disabled, or its stance is eager)")
    return call(*given)


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
    """What is compiled. The same text serves every reach and every bias: they differ in numbers alone."""

    def seen(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return (start_i[i] <= j) & (j < stop_i[i])

    mask = BlockMask((q_bhid.shape[2], k_bgjd.shape[2]), *lists, BLOCK_SIZE=(BLOCK, BLOCK), mask_mod=seen)
    out, aux = flex_attention(
        *(q_bhid, k_bgjd, v_bgjd),
        score_mod=_scored(bias, cap),
        block_mask=mask,
        enable_gqa=True,
        kernel_options={"BACKEND": "TRITON"},  # for few queries too: other kernels have no gradient of the lse
        return_aux=AuxRequest(lse=merged),
    )
    return out, aux.lse


def _scored(bias: tuple[Tensor, Tensor, Tensor] | None, cap: Tensor | None) -> Callable[..., Tensor] | None:
    """What becomes of a scaled product: a bias is added, then the cap is put on it."""
    if bias is None and cap is None:
        return None

    def scored(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        if bias is not None:
            line_hx, x_i, y_j = bias
            score = score + line_hx[h, (x_i[i] - y_j[j]).clamp(min=0)]
        return score if cap is None else cap * torch.tanh(score / cap)

    return scored


def _merged(parts: Sequence[SegmentOutput], sink_h: Tensor | None) -> Tensor:
    """The parts of one softmax, weighted by what each was divided by; zeros in a row that sees nothing."""
    if len(parts) == 1 and sink_h is None:
        return parts[0].out_bhid
    lse_sbhi = torch.stack([part.lse_bhi for part in parts if part.lse_bhi is not None])
    seeing_bhi = (lse_sbhi > -torch.inf).any(0)
    lse_sbhi = lse_sbhi.where(seeing_bhi, 0)
    if sink_h is not None:  # a part that has no answer
        lse_sbhi = torch.cat([lse_sbhi, sink_h[:, None].to(lse_sbhi.dtype).expand_as(lse_sbhi[:1])])
    share_sbhi = torch.softmax(lse_sbhi, 0)
    total = torch.zeros_like(parts[0].out_bhid, dtype=compute_dtype(parts[0].out_bhid.dtype))
    for share_bhi, part in zip(share_sbhi[: len(parts)], parts, strict=True):
        total = total + share_bhi[..., None] * part.out_bhid
    return total.to(parts[0].out_bhid.dtype)


def _zeros(turned: RotatedCopies, rows: int) -> Tensor:
    """The answer of rows that see nothing."""
    return turned.q[0].new_zeros(*turned.q[0].shape[:2], rows, turned.v[0].shape[-1])


def _refused(got: str) -> DoesNotFit:
    return DoesNotFit(
        "attention by FlexAttention",
        f"compiled, in at most {KINDS} kinds (uncompiled it holds every pair of a query and a key in memory)",
        got,
        remedy="let torch compile, or use fewer shapes of heads in one process",
    )
