"""Biases of the distance alone, whose masks fused kernels read from a line of numbers; and their gradients."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ropewalk.attention.backends.backend import Backend
from ropewalk.attention.backends.bias_pruning import NEGLIGIBLE, HeadBand, all_heads, head_bands
from ropewalk.attention.layout.segments import Segment
from ropewalk.attention.problem import AttentionInputs, BiasAt, Problem
from ropewalk.attention.rotation.rotate import LOG2_E, compute_dtype, to_compute_dtype
from ropewalk.attention.torch_kernels import fused
from ropewalk.attention.torch_kernels.fused import Gradients, PartialAttention
from ropewalk.attention.torch_kernels.softmax import add_sinks, sink_gradient

# The backward pass where the mask's line needs a gradient too: weights and slopes in blocks, summed along diagonals.
#
#     weight = exp(logit - lse)      slope = weight (grad v - grad out)      line[x] receives the slopes of diagonal x
#
# A block's rows are padded by as many zeros as it has rows. A view whose rows are one number shorter shifts each row by
# one against the row before, so that diagonals become columns. Five matmuls for each block, about the cost of the fused
# backward pass, and no matrix of all pairs. Where rows are short, several heads and batch rows share a matmul.
#
# Legend: b batch, h query head, g key head, p batch row and head, i query, j key, d head dimension, x index in the
# line.


KEYS_PER_BLOCK = 512  # of a block, with 256 rows: the fastest of 256, 512, 768 and 1024
LOGITS_PER_BLOCK = 256 * KEYS_PER_BLOCK  # of the blocks that are computed together


class DiagonalGradients(NamedTuple):
    """The gradients of queries, keys and values, and of the line that the mask is read from."""

    vectors: Gradients
    line_hx: Tensor


def backward(
    grad_bhid: Tensor, q_bhid: Tensor, k_bgjd: Tensor, v_bgjd: Tensor, whole: PartialAttention, mask_hij: Tensor
) -> DiagonalGradients:
    """The gradients of rows against keys whose mask is line[i + j]; sums in at least float32."""
    vectors = [to_compute_dtype(x) for x in (grad_bhid, q_bhid, k_bgjd, v_bgjd)]
    common_pi = (vectors[0] * to_compute_dtype(whole.out_bhid)).sum(-1).flatten(0, 1)
    lse_pi = whole.lse_bhi.flatten(0, 1)
    grad_pid, q_pid, k_gjd, v_gjd = (x.flatten(0, 1) for x in vectors)
    totals = Gradients(*(torch.zeros(x.shape, dtype=x.dtype, device=x.device) for x in vectors[1:]))
    by_q, by_k, by_v = (x.flatten(0, 1) for x in totals)
    rows, size = q_pid.shape[1:]
    line_hx = q_pid.new_zeros(q_bhid.shape[1], rows + k_gjd.shape[1] - 1, dtype=torch.float64)
    for p, h, g, keys in _blocks_of_one_matmul(q_bhid, k_bgjd):
        q, k, v, grad = q_pid[p], k_gjd[g, keys], v_gjd[g, keys], grad_pid[p]
        weight = _weight(q, k, mask_hij[h, :, keys], lse_pi[p])
        slope, by_diagonal = _slope(weight, grad, v, common_pi[p])
        by_q[p].baddbmm_(slope, k, alpha=1 / math.sqrt(size))
        by_k[:, keys].index_add_(0, g, slope.mT @ q, alpha=1 / math.sqrt(size))
        by_v[:, keys].index_add_(0, g, weight.mT @ grad)
        line_hx[:, keys.start : keys.start + by_diagonal.shape[1]].index_add_(0, h, by_diagonal.double())
    return DiagonalGradients(totals, line_hx)


def _blocks_of_one_matmul(q_bhid: Tensor, k_bgjd: Tensor) -> Iterator[tuple[slice, Tensor, Tensor, slice]]:
    """Blocks that share a matmul: batch rows with heads as a slice, the head and the key head of each, and keys."""
    batch, heads, rows, _ = q_bhid.shape
    groups, count = k_bgjd.shape[1:3]
    p = torch.arange(batch * heads, device=q_bhid.device)
    h = p % heads
    g = p // heads * groups + h // (heads // groups)
    at_once = max(1, LOGITS_PER_BLOCK // (rows * min(count, KEYS_PER_BLOCK)))
    for first, key in itertools.product(range(0, len(p), at_once), range(0, count, KEYS_PER_BLOCK)):
        some = slice(first, first + at_once)
        yield some, h[some], g[some], slice(key, key + KEYS_PER_BLOCK)


def _weight(q_pid: Tensor, k_pjd: Tensor, mask_pij: Tensor, lse_pi: Tensor) -> Tensor:
    """The weights of these keys in the softmax over all keys."""
    scale = LOG2_E / math.sqrt(q_pid.shape[-1])
    logit_pij = torch.baddbmm(mask_pij, q_pid, k_pjd.mT, beta=LOG2_E, alpha=scale)
    return logit_pij.sub_(LOG2_E * lse_pi[..., None]).exp2_()


def _slope(weight_pij: Tensor, grad_pid: Tensor, v_pjd: Tensor, common_pi: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient of the logits, and its sums over i + j = x."""
    pairs, rows, keys = weight_pij.shape
    padded = weight_pij.new_zeros(pairs, rows, keys + rows)
    slope_pij = padded[:, :, :keys]
    slope_pij.copy_(grad_pid @ v_pjd.mT).sub_(common_pi[..., None]).mul_(weight_pij)
    width = keys + rows - 1
    return slope_pij, padded.as_strided((pairs, rows, width), (rows * (keys + rows), width, 1)).sum(1)


# A bias of the distance alone, by fused kernels: the mask is read from a line of numbers and never stored as a square.
#
# The bias of row i and key j is f(i - j). In a block of rows in reverse order, the index of f falls by one from row to
# row, as it does from key to key. So one line of numbers, with strides 1 and 1, is the mask of the whole block; keys
# that a row must not see are minus infinity in it. Memory is linear in the sequence. Heads whose far keys certainly
# weigh nothing skip them (bias_pruning). A line that needs a gradient gets it along the diagonals (diagonal_gradients).
#
# Legend: b batch, h query head, g key head, i query, j key, d head dimension, x index in the line.


ROWS_PER_BLOCK = 256  # of a block: the fastest of 64, 128, 256 and 512 in both precisions


def why_not(problem: Problem) -> str | None:
    """Why this backend does not support a problem, or nothing."""
    if not problem.extension.biases:
        return "there is no bias"
    if not all(spec.of_distance_alone for spec in problem.extension.biases):
        return f"the bias depends on more than the distance ({problem.biases})"
    if problem.softcap is not None:
        return f"the fused kernels have no cap on logits (softcap {problem.softcap:g})"
    spans = {segment.span for segment in problem.segments}
    if len(spans) > 1 or any(diagonal(one, problem.queries, problem.keys) is None for one in problem.segments):
        return f"the reach gives the bias effective distances that differ from the true ones ({problem.biases})"
    return (
        None if problem.value_dim == problem.head_dim else "the fused kernels need values of the same size as queries"
    )


def why(problem: Problem) -> str:
    """What this backend does with a problem."""
    if problem.learning:
        far = "its gradient is summed along the diagonals"
    else:
        share = f"2^{NEGLIGIBLE[problem.dtype]}"
        far = f"far keys are left out where the norms prove that they weigh less than {share} in all"
    replaced = fused.why_matmul(problem.device, problem.dtype, problem.head_dim)
    return f"the mask of the fused kernels is read from a line of numbers ({problem.biases}); {far}{replaced}"


class DiagonalRows(NamedTuple):
    """Rows that see the keys at distances nearest .. furthest, counted in slots: row r has key slot `ahead + r`."""

    rows: slice
    ahead: int
    nearest: int
    furthest: int

    @property
    def last(self) -> int:
        """The slot of the last row."""
        return self.ahead + int(self.rows.stop) - 1


def diagonal(segment: Segment, queries: int, keys: int) -> DiagonalRows | None:
    """The segment in this form, or nothing where its distances or its bounds do not depend on i - j alone."""
    ahead = keys - queries
    slot = torch.arange(segment.rows.start, segment.rows.stop) + ahead
    to_itself = segment.q_at.double() - segment.k_at[slot]
    true_distances = (segment.k_at.diff() == 1).all() and (to_itself == 0).all()
    seeing = segment.stop > segment.start
    if not true_distances or not seeing.all():
        return None
    nearest, furthest = slot - segment.stop + 1, slot - segment.start
    cut = segment.start == 0
    bounded = furthest[~cut]
    widest = int(bounded.max()) if len(bounded) else keys
    if (nearest != nearest[0]).any() or (bounded != widest).any() or (furthest[cut] > widest).any():
        return None
    return DiagonalRows(segment.rows, ahead, int(nearest[0]), widest)


def bias_diagonals(
    copies: Sequence[tuple[Tensor, Tensor]],
    v_bgjd: Tensor,
    diagonals: Sequence[DiagonalRows],
    bias_at: BiasAt,
    sink_h: Tensor | None,
) -> Tensor:
    """The attention of all diagonals, in the order of their rows; each has its own copies of queries and keys.

    Gradients reach the line of numbers that `bias_at` gives, and the learned numbers behind it.
    """
    parts = []
    for (q_bhid, k_bgjd), rows in zip(copies, diagonals, strict=True):
        q_bhid = q_bhid[:, :, rows.rows]
        line_hx = bias_at(_distances(rows, q_bhid.device).clamp(min=0)).expand(q_bhid.shape[1], -1)
        arguments = (q_bhid, k_bgjd, v_bgjd, line_hx, sink_h, rows, _bands(rows, line_hx, q_bhid, k_bgjd))
        parts.append(BiasDiagonalsFunction.apply(*arguments))  # type: ignore[no-untyped-call]
    return torch.cat(parts, 2)


def _distances(diagonal: DiagonalRows, device: torch.device) -> Tensor:
    """The distance of each number of the line: the largest first, down to that of a block's first row and last key."""
    return torch.arange(diagonal.last, -ROWS_PER_BLOCK - 1, -1, device=device)


@torch.no_grad()
def _bands(diagonal: DiagonalRows, line_hx: Tensor, q_bhid: Tensor, k_bgjd: Tensor) -> list[HeadBand]:
    """How far each head looks. A line that learns is used whole: nothing bounds the gradients of its far end."""
    furthest = min(diagonal.furthest, diagonal.last)
    if line_hx.requires_grad:
        return all_heads(q_bhid, k_bgjd, furthest - diagonal.nearest + 1)
    f_hx = line_hx[:, diagonal.last - furthest : diagonal.last - diagonal.nearest + 1].flip(-1)
    first = diagonal.ahead + diagonal.rows.start - diagonal.nearest
    return head_bands(f_hx, q_bhid, k_bgjd, slice(first, first + q_bhid.shape[2]), ROWS_PER_BLOCK)


class BiasDiagonalsFunction(torch.autograd.Function):
    """Forward and backward, band by band and block of rows by block of rows."""

    @staticmethod
    def forward(
        ctx: Any,
        q_bhid: Tensor,
        k_bgjd: Tensor,
        v_bgjd: Tensor,
        line_hx: Tensor,
        sink_h: Tensor | None,
        diagonal: DiagonalRows,
        head_bands: list[HeadBand],
    ) -> Tensor:
        """The output of all rows."""
        out = q_bhid.new_empty(*q_bhid.shape[:3], v_bgjd.shape[-1])
        lse = torch.empty(q_bhid.shape[:3], dtype=compute_dtype(q_bhid.dtype), device=q_bhid.device)
        for block in _blocks(diagonal, head_bands, line_hx, q_bhid):
            q, k, v = block.queries(q_bhid), block.keys(k_bgjd), block.keys(v_bgjd)
            part = fused.forward(q, k, v, triangle=False, mask_ij=block.mask)
            if sink_h is not None:
                part = add_sinks(part, block.sinks(sink_h))
            block.put(out, part.out_bhid)
            block.put(lse, part.lse_bhi)
        ctx.save_for_backward(q_bhid, k_bgjd, v_bgjd, out, lse, line_hx, sink_h)
        ctx.diagonal, ctx.bands = diagonal, head_bands
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of queries, keys, values and, where they need one, of the line and the sinks."""
        q_bhid, k_bgjd, v_bgjd, out, lse, line_hx, sink_h = ctx.saved_tensors
        by_q = torch.empty_like(q_bhid)
        by_k, by_v = (torch.zeros_like(x, dtype=compute_dtype(x.dtype)) for x in (k_bgjd, v_bgjd))
        by_line = torch.zeros_like(line_hx) if ctx.needs_input_grad[3] else None
        by_sink = torch.zeros_like(sink_h) if ctx.needs_input_grad[4] else None
        with torch.autocast(q_bhid.device.type, enabled=False):
            for block in _blocks(ctx.diagonal, ctx.bands, line_hx, q_bhid):
                grad, q, output, sums = (block.queries(x) for x in (grads[0], q_bhid, out, lse))
                part = block.backward(grad, q, k_bgjd, v_bgjd, PartialAttention(output, sums), by_line)
                block.put(by_q, part.q_bhid)
                block.keys(by_k).add_(part.k_bgjd)
                block.keys(by_v).add_(part.v_bgjd)
                if by_sink is not None:
                    by_sink[block.band.heads] += sink_gradient(
                        grad, PartialAttention(output, sums), block.sinks(sink_h)
                    )
        return by_q, by_k.to(k_bgjd.dtype), by_v.to(v_bgjd.dtype), by_line, by_sink, None, None


class MaskedBlock(NamedTuple):
    """Rows of a band, the keys that any of them sees, and the mask between the two."""

    band: HeadBand
    rows: slice
    visible: slice
    begin: int  # of the mask in the line
    mask: Tensor
    highest_h: Tensor  # what was subtracted from each head's biases

    def sinks(self, sink_h: Tensor) -> Tensor:
        """The sinks of its heads, lowered as its logits are."""
        return (sink_h[self.band.heads] - self.highest_h).to(sink_h.dtype)

    def queries(self, x_bhi: Tensor) -> Tensor:
        """The block's rows of a tensor of all queries, in reverse order."""
        return x_bhi[self.band.batch, self.band.heads, self.rows].flip(2)

    def keys(self, x_bgj: Tensor) -> Tensor:
        """The block's keys of a tensor of all keys."""
        return x_bgj[self.band.batch, self.band.groups, self.visible]

    def put(self, target_bhi: Tensor, rows_bhi: Tensor) -> None:
        """Write the block's rows into a tensor of all queries."""
        target_bhi[self.band.batch, self.band.heads, self.rows] = rows_bhi.flip(2)

    def backward(
        self, grad: Tensor, q: Tensor, k_bgjd: Tensor, v_bgjd: Tensor, output: PartialAttention, by_line: Tensor | None
    ) -> Gradients:
        """The gradients of the block's vectors; those of the line are added to it."""
        k, v = self.keys(k_bgjd), self.keys(v_bgjd)
        if by_line is None:
            return fused.backward(grad, q, k, v, output, triangle=False, mask_ij=self.mask)
        gradients = backward(grad, q, k, v, output, self.mask[0])
        by_line[self.band.heads, self.begin : self.begin + gradients.line_hx.shape[1]] += gradients.line_hx
        return gradients.vectors


def _blocks(
    diagonal: DiagonalRows, head_bands: Sequence[HeadBand], line_hx: Tensor, q_bhid: Tensor
) -> Iterator[MaskedBlock]:
    """All rows of all bands, once."""
    for band in head_bands:
        reach = diagonal._replace(furthest=diagonal.nearest + band.width - 1)
        mask_hx, highest_h = _mask_line(reach, line_hx[band.heads], compute_dtype(q_bhid.dtype))
        for first in range(0, q_bhid.shape[2], ROWS_PER_BLOCK):
            rows = slice(first, min(first + ROWS_PER_BLOCK, q_bhid.shape[2]))
            lowest, highest = (diagonal.ahead + diagonal.rows.start + row for row in (first, rows.stop - 1))
            visible = slice(max(lowest - reach.furthest, 0), highest - diagonal.nearest + 1)
            begin = diagonal.last - (highest - visible.start)
            size = (1, len(mask_hx), rows.stop - first, visible.stop - visible.start)
            mask = mask_hx.as_strided(size, (0, mask_hx.shape[1], 1, 1), begin)
            yield MaskedBlock(band, rows, visible, begin, mask, highest_h)


def _mask_line(diagonal: DiagonalRows, line_hx: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The line as the kernels add it, hidden distances at -inf, minus each head's largest number; and that number."""
    distance = _distances(diagonal, line_hx.device)
    line_hx = line_hx.masked_fill((distance < diagonal.nearest) | (distance > diagonal.furthest), -torch.inf)
    # A constant per head cancels in the softmax; without it rounding loses less.
    highest_h = line_hx.amax(-1)
    return (line_hx - highest_h[:, None]).to(dtype).contiguous(), highest_h


def _run(inputs: AttentionInputs) -> Tensor:
    problem, copies = inputs.problem, inputs.rotated_copies()
    rows = [diagonal(segment, problem.queries, problem.keys) for segment in problem.segments]
    pairs = [(copies.q[job.q], copies.k[job.k]) for job in copies.jobs]
    return bias_diagonals(pairs, copies.v[0], [one for one in rows if one], inputs.bias_of_distance, inputs.sink_h)


BIAS_DIAGONALS = Backend("bias_diagonals", why_not, why, _run)
