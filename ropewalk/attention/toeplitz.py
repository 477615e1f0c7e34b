"""A bias of the distance alone, by fused kernels: the mask is read from a line of numbers, never written out.

The bias of row i and key j is f(i - j). In a block of rows taken backwards the index of f falls from row to row as it
falls from key to key, so one line of numbers, with strides 1 and 1, is the mask of the whole block; what a row must not
see is minus infinity in it. Memory is linear in the text.

Legend: b batch, h query head, g key head, i query, j key, d head dimension, x index in the line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ropewalk.attention import kernels
from ropewalk.attention.case import Case
from ropewalk.attention.kernels import Part
from ropewalk.attention.precision import wide
from ropewalk.attention.strands import Strand

ROWS = 256  # of a block: the fastest of 64, 128, 256 and 512 in both precisions

# f at whole distances, [heads, distances], float64
BiasAt = Callable[[Tensor], Tensor]


def why_not(case: Case) -> str | None:
    """Why this way cannot carry the case, or nothing."""
    if not case.extension.biases:
        return "there is no bias to make a line of"
    if case.learning:
        return f"what the bias has learned wants a gradient ({case.biases})"
    if not all(spec.of_distance_alone for spec in case.extension.biases):
        return f"the bias is not one of the distance alone ({case.biases})"
    spans = {strand.span for strand in case.strands}
    if len(spans) > 1 or any(diagonal(strand, case.queries, case.keys) is None for strand in case.strands):
        return f"the reach shows other distances than the true ones to a bias ({case.biases})"
    return None if case.value_dim == case.head_dim else "the fused kernels want values of the queries' size"


class Diagonal(NamedTuple):
    """Rows that see the keys at distances nearest .. furthest, as slots: row r stands at key slot `ahead + r`."""

    rows: slice
    ahead: int
    nearest: int
    furthest: int


def diagonal(strand: Strand, queries: int, keys: int) -> Diagonal | None:
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
    return Diagonal(strand.rows, ahead, int(nearest[0]), widest)


def toeplitz(
    copies: Sequence[tuple[Tensor, Tensor]], v_bgjd: Tensor, diagonals: Sequence[Diagonal], bias_at: BiasAt
) -> Tensor:
    """The attention of all diagonals, in the order of their rows; each has its own copies of queries and keys."""
    parts = [
        Toeplitz.apply(q[:, :, own.rows], k, v_bgjd, own, bias_at)  # type: ignore[no-untyped-call]
        for (q, k), own in zip(copies, diagonals, strict=True)
    ]
    return torch.cat(parts, 2)


class Toeplitz(torch.autograd.Function):
    """Forward and backward, block of rows by block of rows. f itself receives no gradient."""

    @staticmethod
    def forward(ctx: Any, q_bhid: Tensor, k_bgjd: Tensor, v_bgjd: Tensor, own: Diagonal, bias_at: BiasAt) -> Tensor:
        """The answer of all rows."""
        line_hx = _line(own, bias_at, q_bhid)
        out, lse = q_bhid.new_empty(*q_bhid.shape[:3], v_bgjd.shape[-1]), []
        for block in _blocks(own, q_bhid.shape[2], line_hx):
            q = q_bhid[:, :, block.rows].flip(2)
            k, v = k_bgjd[:, :, block.keys], v_bgjd[:, :, block.keys]
            part = kernels.forward(q, k, v, triangle=False, mask_ij=block.mask)
            out[:, :, block.rows] = part.out_bhid.flip(2)
            lse.append(part.lse_bhi)
        ctx.save_for_backward(q_bhid, k_bgjd, v_bgjd, out, torch.cat(lse, 2), line_hx)
        ctx.own = own
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        """The gradients of queries, keys and values."""
        q_bhid, k_bgjd, v_bgjd, out, lse, line_hx = ctx.saved_tensors
        by_q = torch.zeros_like(q_bhid)
        by_k, by_v = (torch.zeros_like(x, dtype=wide(x.dtype)) for x in (k_bgjd, v_bgjd))
        for block in _blocks(ctx.own, q_bhid.shape[2], line_hx):
            grad, q, answer = (x[:, :, block.rows].flip(2) for x in (grads[0], q_bhid, out))
            k, v = k_bgjd[:, :, block.keys], v_bgjd[:, :, block.keys]
            part = Part(answer, lse[:, :, block.rows].contiguous())
            found = kernels.backward(grad, q, k, v, part, triangle=False, mask_ij=block.mask)
            by_q[:, :, block.rows] = found.q_bhid.flip(2)
            by_k[:, :, block.keys] += found.k_bgjd
            by_v[:, :, block.keys] += found.v_bgjd
        return by_q, by_k.to(k_bgjd.dtype), by_v.to(v_bgjd.dtype), None, None


class Block(NamedTuple):
    """Rows, taken backwards, the keys that any of them sees, and the mask between them."""

    rows: slice
    keys: slice
    mask: Tensor


def _line(own: Diagonal, bias_at: BiasAt, like: Tensor) -> Tensor:
    """f from the furthest distance in the text down to that of a block's last row and first key, hidden ones -inf."""
    furthest = own.ahead + own.rows.stop - 1
    distance = torch.arange(furthest, -ROWS - 1, -1, device=like.device)
    hidden = (distance < own.nearest) | (distance > own.furthest)
    line = bias_at(distance.clamp(min=0)).masked_fill(hidden, -torch.inf)
    # What all of a head's keys have in common cancels in the softmax; without it little is lost to rounding.
    return (line - line.amax(-1, keepdim=True)).to(like.dtype).contiguous()


def _blocks(own: Diagonal, rows: int, line_hx: Tensor) -> list[Block]:
    blocks = []
    for first in range(0, rows, ROWS):
        end = min(first + ROWS, rows)
        lowest = own.ahead + own.rows.start + first
        highest = lowest + end - first - 1
        keys = slice(max(lowest - own.furthest, 0), highest - own.nearest + 1)
        # The line begins at the distance of the text's last row and its first key.
        begin = (own.ahead + own.rows.stop - 1) - (highest - keys.start)
        size = (1, len(line_hx), end - first, keys.stop - keys.start)
        mask = line_hx[:, begin:].as_strided(size, (0, line_hx.shape[1], 1, 1), begin)
        blocks.append(Block(slice(first, end), keys, mask))
    return blocks
