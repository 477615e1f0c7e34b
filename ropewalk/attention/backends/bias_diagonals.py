"""A bias of the distance alone, by fused kernels: the mask is read from a line of numbers, never written out.

The bias of row i and key j is f(i - j). In a block of rows taken backwards the index of f falls from row to row as it
falls from key to key, so one line of numbers, with strides 1 and 1, is the mask of the whole block; what a row must not
see is minus infinity in it. Memory is linear in the text. Heads whose far keys are certified to weigh nothing look no
further than they need (pruning); a line that wants a gradient gets it along the diagonals (diagonal_gradients).

Legend: b batch, h query head, g key head, i query, j key, d head dimension, x index in the line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ropewalk.attention.backends import diagonal_gradients
from ropewalk.attention.backends.bias_pruning import HeadBand, all_heads, head_bands
from ropewalk.attention.layout.segments import Segment
from ropewalk.attention.problem import Problem
from ropewalk.attention.rotation.precision import compute_dtype
from ropewalk.attention.torch_kernels import verified
from ropewalk.attention.torch_kernels.softmax import by_sinks, with_sinks
from ropewalk.attention.torch_kernels.verified import Gradients, PartialAttention

ROWS = 256  # of a block: the fastest of 64, 128, 256 and 512 in both precisions

# f at whole distances, [heads, distances], float64
BiasAt = Callable[[Tensor], Tensor]


def why_not(case: Problem) -> str | None:
    """Why this way cannot carry the case, or nothing."""
    if not case.extension.biases:
        return "there is no bias to make a line of"
    if not all(spec.of_distance_alone for spec in case.extension.biases):
        return f"the bias is not one of the distance alone ({case.biases})"
    if case.softcap is not None:
        return f"the fused kernels put no cap on logits (softcap {case.softcap:g})"
    spans = {strand.span for strand in case.strands}
    if len(spans) > 1 or any(diagonal(strand, case.queries, case.keys) is None for strand in case.strands):
        return f"the reach shows other distances than the true ones to a bias ({case.biases})"
    return None if case.value_dim == case.head_dim else "the fused kernels want values of the queries' size"


class DiagonalRows(NamedTuple):
    """Rows that see the keys at distances nearest .. furthest, as slots: row r stands at key slot `ahead + r`."""

    rows: slice
    ahead: int
    nearest: int
    furthest: int

    @property
    def last(self) -> int:
        """The slot of the last row."""
        return self.ahead + int(self.rows.stop) - 1


def diagonal(strand: Segment, queries: int, keys: int) -> DiagonalRows | None:
    """The strand as one, or nothing where what it shows or hides is not a matter of the distance alone."""
    ahead = keys - queries
    slot = torch.arange(strand.rows.start, strand.rows.stop) + ahead
    shown = strand.q_at.double() - strand.k_at[slot]
    evenly = (strand.k_at.diff() == 1).all() and (shown == 0).all()
    seeing = strand.stop > strand.start
    if not evenly or not seeing.all():
        return None
    nearest, furthest = slot - strand.stop + 1, slot - strand.start
    cut = strand.start == 0
    bounded = furthest[~cut]
    widest = int(bounded.max()) if len(bounded) else keys
    if (nearest != nearest[0]).any() or (bounded != widest).any() or (furthest[cut] > widest).any():
        return None
    return DiagonalRows(strand.rows, ahead, int(nearest[0]), widest)


def bias_diagonals(
    copies: Sequence[tuple[Tensor, Tensor]],
    v_bgjd: Tensor,
    diagonals: Sequence[DiagonalRows],
    bias_at: BiasAt,
    sink_h: Tensor | None,
) -> Tensor:
    """The attention of all diagonals, in the order of their rows; each has its own copies of queries and keys.

    Gradients reach the line of numbers that `bias_at` gives, and what it was made from.
    """
    parts = []
    for (q_bhid, k_bgjd), own in zip(copies, diagonals, strict=True):
        q_bhid = q_bhid[:, :, own.rows]
        line_hx = bias_at(_distances(own, q_bhid.device).clamp(min=0)).expand(q_bhid.shape[1], -1)
        given = (q_bhid, k_bgjd, v_bgjd, line_hx, sink_h, own, _bands(own, line_hx, q_bhid, k_bgjd))
        parts.append(BiasDiagonalsFunction.apply(*given))  # type: ignore[no-untyped-call]
    return torch.cat(parts, 2)


def _distances(own: DiagonalRows, device: torch.device) -> Tensor:
    """Of the line's numbers: from the text's furthest down to that of a block's first row and its last key."""
    return torch.arange(own.last, -ROWS - 1, -1, device=device)


@torch.no_grad()
def _bands(own: DiagonalRows, line_hx: Tensor, q_bhid: Tensor, k_bgjd: Tensor) -> list[HeadBand]:
    """How far each head looks. A line that learns is kept whole: nothing certifies the slopes of its far end."""
    furthest = min(own.furthest, own.last)
    if line_hx.requires_grad:
        return all_heads(q_bhid, k_bgjd, furthest - own.nearest + 1)
    f_hx = line_hx[:, own.last - furthest : own.last - own.nearest + 1].flip(-1)
    first = own.ahead + own.rows.start - own.nearest
    return head_bands(f_hx, q_bhid, k_bgjd, slice(first, first + q_bhid.shape[2]), ROWS)


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
        own: DiagonalRows,
        head_bands: list[HeadBand],
    ) -> Tensor:
        """The answer of all rows."""
        out = q_bhid.new_empty(*q_bhid.shape[:3], v_bgjd.shape[-1])
        lse = torch.empty(q_bhid.shape[:3], dtype=compute_dtype(q_bhid.dtype), device=q_bhid.device)
        for block in _blocks(own, head_bands, line_hx, q_bhid):
            q, k, v = block.queries(q_bhid), block.keys(k_bgjd), block.keys(v_bgjd)
            part = verified.forward(q, k, v, triangle=False, mask_ij=block.mask)
            if sink_h is not None:
                part = with_sinks(part, block.sinks(sink_h))
            block.put(out, part.out_bhid)
            block.put(lse, part.lse_bhi)
        ctx.save_for_backward(q_bhid, k_bgjd, v_bgjd, out, lse, line_hx, sink_h)
        ctx.own, ctx.bands = own, head_bands
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of queries, keys, values and, where they want one, of the line and the sinks."""
        q_bhid, k_bgjd, v_bgjd, out, lse, line_hx, sink_h = ctx.saved_tensors
        by_q = torch.empty_like(q_bhid)
        by_k, by_v = (torch.zeros_like(x, dtype=compute_dtype(x.dtype)) for x in (k_bgjd, v_bgjd))
        by_line = torch.zeros_like(line_hx) if ctx.needs_input_grad[3] else None
        by_sink = torch.zeros_like(sink_h) if ctx.needs_input_grad[4] else None
        with torch.autocast(q_bhid.device.type, enabled=False):
            for block in _blocks(ctx.own, ctx.bands, line_hx, q_bhid):
                grad, q, answer, sums = (block.queries(x) for x in (grads[0], q_bhid, out, lse))
                found = block.backward(grad, q, k_bgjd, v_bgjd, PartialAttention(answer, sums), by_line)
                block.put(by_q, found.q_bhid)
                block.keys(by_k).add_(found.k_bgjd)
                block.keys(by_v).add_(found.v_bgjd)
                if by_sink is not None:
                    by_sink[block.band.heads] += by_sinks(grad, PartialAttention(answer, sums), block.sinks(sink_h))
        return by_q, by_k.to(k_bgjd.dtype), by_v.to(v_bgjd.dtype), by_line, by_sink, None, None


class MaskedBlock(NamedTuple):
    """Rows of a band, the keys that any of them sees, and the mask between the two."""

    band: HeadBand
    rows: slice
    seen: slice
    begin: int  # of the mask in the line
    mask: Tensor
    highest_h: Tensor  # what was taken off each head's biases

    def sinks(self, sink_h: Tensor) -> Tensor:
        """The sinks of its heads beside logits that go without that."""
        return (sink_h[self.band.heads] - self.highest_h).to(sink_h.dtype)

    def queries(self, x_bhi: Tensor) -> Tensor:
        """The block's part of what queries have, backwards."""
        return x_bhi[self.band.batch, self.band.heads, self.rows].flip(2)

    def keys(self, x_bgj: Tensor) -> Tensor:
        """The block's part of what keys have."""
        return x_bgj[self.band.batch, self.band.groups, self.seen]

    def put(self, target_bhi: Tensor, found_bhi: Tensor) -> None:
        """What was found for the block's rows, in its place."""
        target_bhi[self.band.batch, self.band.heads, self.rows] = found_bhi.flip(2)

    def backward(
        self, grad: Tensor, q: Tensor, k_bgjd: Tensor, v_bgjd: Tensor, answer: PartialAttention, by_line: Tensor | None
    ) -> Gradients:
        """The gradients of the block's vectors; those of the line are added to it."""
        k, v = self.keys(k_bgjd), self.keys(v_bgjd)
        if by_line is None:
            return verified.backward(grad, q, k, v, answer, triangle=False, mask_ij=self.mask)
        found = diagonal_gradients.backward(grad, q, k, v, answer, self.mask[0])
        by_line[self.band.heads, self.begin : self.begin + found.line_hx.shape[1]] += found.line_hx
        return found.vectors


def _blocks(
    own: DiagonalRows, head_bands: Sequence[HeadBand], line_hx: Tensor, q_bhid: Tensor
) -> Iterator[MaskedBlock]:
    """All rows of all bands, once."""
    for band in head_bands:
        reach = own._replace(furthest=own.nearest + band.width - 1)
        mask_hx, highest_h = _mask_line(reach, line_hx[band.heads], compute_dtype(q_bhid.dtype))
        for first in range(0, q_bhid.shape[2], ROWS):
            rows = slice(first, min(first + ROWS, q_bhid.shape[2]))
            lowest, highest = (own.ahead + own.rows.start + row for row in (first, rows.stop - 1))
            seen = slice(max(lowest - reach.furthest, 0), highest - own.nearest + 1)
            begin = own.last - (highest - seen.start)
            size = (1, len(mask_hx), rows.stop - first, seen.stop - seen.start)
            mask = mask_hx.as_strided(size, (0, mask_hx.shape[1], 1, 1), begin)
            yield MaskedBlock(band, rows, seen, begin, mask, highest_h)


def _mask_line(own: DiagonalRows, line_hx: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The line as the kernels add it, hidden distances at -inf, less each head's largest; and that."""
    distance = _distances(own, line_hx.device)
    line_hx = line_hx.masked_fill((distance < own.nearest) | (distance > own.furthest), -torch.inf)
    # What all of a head's keys have in common cancels in the softmax; without it little is lost to rounding.
    highest_h = line_hx.amax(-1)
    return (line_hx - highest_h[:, None]).to(dtype).contiguous(), highest_h
