"""Attention over strands by fused kernels: each piece by the kernel, the parts merged by their log-sum-exp.

The backward pass calls each piece's own backward with the answer and the log-sum-exp of the whole: then the softmax of
the piece divides by the sum over all keys, and its gradients are exact parts of the whole's.

Legend: b batch, h query head, g key head, i query, j key, d head dimension, n blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ropewalk.attention.layout.tiles import Tile
from ropewalk.attention.problem import Problem
from ropewalk.attention.rotation.precision import compute_dtype
from ropewalk.attention.rotation.rotated_copies import RotatedCopies, SegmentInputs
from ropewalk.attention.torch_kernels import verified
from ropewalk.attention.torch_kernels.softmax import by_sinks, with_sinks
from ropewalk.attention.torch_kernels.verified import PartialAttention

# Of a band's blocks, as measured: the backward pass in half precision wants larger ones than the forward pass.
FORWARD_ROWS = 64
BACKWARD_ROWS = {
    torch.float32: 64,
    torch.float64: 64,
    torch.bfloat16: 256,
    torch.float16: 256,
}
KEYS_AT_ONCE = 8192  # whose gradients are held at a time
SCATTERED = 8  # fewer rows a piece than this, and a kernel's call costs more than its work


def why_not(case: Problem) -> str | None:
    """Why this way cannot carry the case, or nothing."""
    if case.extension.biases:
        return f"the fused kernels add no bias ({case.biases})"
    if case.softcap is not None:
        return f"the fused kernels put no cap on logits (softcap {case.softcap:g})"
    pieces = sum(len(strand.pieces) for strand in case.strands)
    if pieces > max(case.queries / SCATTERED, 4 * len(case.strands)):
        return f"positions scatter the spans into {pieces} pieces for {case.queries} queries"
    if case.value_dim != case.head_dim:
        return "the fused kernels want values of the queries' size"
    # Elsewhere a matmul stands in for the kernel; cuda has a better way.
    return verified.why_no_kernel(case.device, case.dtype, case.head_dim) if case.device.type == "cuda" else None


def flash(turned: RotatedCopies, sink_h: Tensor | None) -> Tensor:
    """The attention of all jobs together, and of the model's sinks where it has any."""
    given = (turned.jobs, (len(turned.q), len(turned.k)), sink_h, *turned.q, *turned.k, *turned.v)
    output: Tensor = FlashFunction.apply(*given)  # type: ignore[no-untyped-call]
    return output


class FlashFunction(torch.autograd.Function):
    """Forward and backward over jobs, one batch row at a time, so that blocks are views and nothing is copied."""

    @staticmethod
    def forward(
        ctx: Any, jobs: Sequence[SegmentInputs], sizes: tuple[int, int], sink_h: Tensor | None, *tensors: Tensor
    ) -> Tensor:
        """The answer; the tensors are as many copies of queries and of keys as the sizes say, then the values."""
        qs, ks, vs = _apart(tensors, sizes)
        out = torch.zeros(*qs[0].shape[:-1], vs[0].shape[-1], dtype=vs[0].dtype, device=vs[0].device)
        lse = torch.full(qs[0].shape[:-1], -torch.inf, dtype=compute_dtype(out.dtype), device=out.device)
        for b in range(len(out)):
            whole, fresh = PartialAttention(out[b], lse[b]), torch.ones(out.shape[2], dtype=torch.bool)
            for job in jobs:
                for step in _steps(job, qs[job.q][b], ks[job.k][b], vs[job.v][b], FORWARD_ROWS):
                    step.forward(whole, fresh)
        if sink_h is not None:
            out, lse = with_sinks(PartialAttention(out, lse), sink_h)
        ctx.save_for_backward(*tensors, out, lse, sink_h)
        ctx.jobs, ctx.sizes = jobs, sizes
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of the same tensors."""
        *tensors, out, lse, sink_h = ctx.saved_tensors
        totals = [torch.zeros_like(tensor, dtype=compute_dtype(tensor.dtype)) for tensor in tensors]
        (qs, ks, vs), (by_q, by_k, by_v) = _apart(tensors, ctx.sizes), _apart(totals, ctx.sizes)
        for b in range(len(out)):
            whole = PartialAttention(out[b], lse[b])
            for job in ctx.jobs:
                for step in _steps(job, qs[job.q][b], ks[job.k][b], vs[job.v][b], BACKWARD_ROWS[out.dtype]):
                    step.backward(grads[0][b], whole, (by_q[job.q][b], by_k[job.k][b], by_v[job.v][b]))
        by_sink = by_sinks(grads[0], PartialAttention(out, lse), sink_h) if ctx.needs_input_grad[2] else None
        return None, None, by_sink, *(total.to(tensor.dtype) for total, tensor in zip(totals, tensors, strict=True))


def _apart(tensors: Sequence[Tensor], sizes: tuple[int, int]) -> tuple[Sequence[Tensor], ...]:
    """Queries, keys and values."""
    queries, keys = sizes
    return tensors[:queries], tensors[queries : queries + keys], tensors[queries + keys :]


class KernelCall(NamedTuple):
    """One call of a kernel in one batch row: a piece, or `blocks` pieces that are equal but for standing as many rows,
    and keys, apart as a piece has rows."""

    q_hid: Tensor
    k_gjd: Tensor
    v_gjd: Tensor
    piece: Tile  # the first
    blocks: int = 1
    mask_ij: Tensor | None = None
    window: int | None = None

    def _queries(self, x_hi: Tensor) -> Tensor:
        return _blocks(x_hi, self.piece.row, self.piece.rows, self.blocks, self.piece.rows)

    def _keys(self, x_gj: Tensor) -> Tensor:
        return _blocks(x_gj, self.piece.key, self.piece.keys, self.blocks, self.piece.rows)

    def forward(self, whole: PartialAttention, fresh: Tensor) -> None:
        """Add this step's share to the whole."""
        triangle = self.piece.kind == "triangle"
        q, k, v = self._queries(self.q_hid), self._keys(self.k_gjd), self._keys(self.v_gjd)
        part = verified.forward(q, k, v, triangle=triangle, mask_ij=self.mask_ij, window=self.window)
        rows = self._queries(fresh[None, :])
        target = PartialAttention(*(self._queries(each) for each in whole))
        if rows.all():
            target.out_bhid.copy_(part.out_bhid)
            target.lse_bhi.copy_(part.lse_bhi)
        else:
            _merge(target, part)
        rows.fill_(False)

    def backward(self, grad_hid: Tensor, whole: PartialAttention, totals: tuple[Tensor, Tensor, Tensor]) -> None:
        """Add this step's gradients to the totals, a few blocks at a time: overlapping keys have a gradient in each."""
        most = max(1, KEYS_AT_ONCE // self.piece.keys)
        for first in range(0, self.blocks, most):
            shift, count = first * self.piece.rows, min(most, self.blocks - first)
            some = self.piece._replace(row=self.piece.row + shift, key=self.piece.key + shift)
            self._replace(piece=some, blocks=count)._backward(grad_hid, whole, totals)

    def _backward(self, grad_hid: Tensor, whole: PartialAttention, totals: tuple[Tensor, Tensor, Tensor]) -> None:
        q, k, v = self._queries(self.q_hid), self._keys(self.k_gjd), self._keys(self.v_gjd)
        answer = PartialAttention(*(self._queries(each).contiguous() for each in whole))
        triangle = self.piece.kind == "triangle"
        grad = self._queries(grad_hid).contiguous()
        found = verified.backward(grad, q, k, v, answer, triangle=triangle, mask_ij=self.mask_ij, window=self.window)
        by_q, by_k, by_v = totals
        self._queries(by_q).add_(found.q_bhid)
        self._add_by_key(by_k, found.k_bgjd)
        self._add_by_key(by_v, found.v_bgjd)

    def _add_by_key(self, total_gjd: Tensor, found_ngjd: Tensor) -> None:
        """Blocks of keys may overlap: add them in slices of their distance, which do not."""
        apart = self.piece.rows if self.blocks > 1 else self.piece.keys
        for first in range(0, self.piece.keys, apart):
            part = found_ngjd[:, :, first : first + apart]
            place = self.piece.key + first
            _blocks(total_gjd, place, part.shape[2], self.blocks, apart).add_(part)


def _blocks(x_hi: Tensor, first: int, size: int, count: int, step: int) -> Tensor:
    """A view [count, heads, size, ...] of blocks along the second dimension of [heads, tokens, ...]."""
    if count == 1:
        return x_hi[None, :, first : first + size]
    taken = x_hi[:, first : first + (count - 1) * step + size]
    return taken.unfold(1, size, step).movedim(-1, 2).movedim(1, 0)


def _merge(target: PartialAttention, part: PartialAttention) -> None:
    """Two parts of one softmax, weighted by what each was divided by; weights and sums at least in float32."""
    total = torch.logaddexp(target.lse_bhi, part.lse_bhi)
    share = torch.exp(part.lse_bhi - total)[..., None]
    working = compute_dtype(target.out_bhid.dtype)
    if working == target.out_bhid.dtype:
        target.out_bhid.lerp_(part.out_bhid, share)
    else:
        target.out_bhid.copy_(torch.lerp(target.out_bhid.to(working), part.out_bhid.to(working), share))
    target.lse_bhi.copy_(total)


def _steps(job: SegmentInputs, q_hid: Tensor, k_gjd: Tensor, v_gjd: Tensor, rows: int) -> list[KernelCall]:
    """A job's pieces as calls of a kernel, bands in blocks of so many rows."""
    steps, whole_bands = [], verified.has_window_kernel(q_hid)
    for piece in job.pieces:
        width = piece.keys - piece.rows + 1
        if piece.kind != "band" or whole_bands:
            steps.append(KernelCall(q_hid, k_gjd, v_gjd, piece, window=width if piece.kind == "band" else None))
            continue
        for part, blocks in _band_blocks(piece, width, rows):
            mask = _band_mask(part.rows, width, v_gjd.dtype, str(q_hid.device))
            steps.append(KernelCall(q_hid, k_gjd, v_gjd, part, blocks, mask))
    return steps


def _band_blocks(piece: Tile, width: int, rows: int) -> list[tuple[Tile, int]]:
    """A band as equal blocks of rows, each with the keys that any of its rows sees, and a last shorter one: the first
    of each size, and how many there are."""
    whole, rest = divmod(piece.rows, rows)
    blocks = []
    if whole:
        blocks.append((Tile("band", piece.row, rows, piece.key, rows + width - 1), whole))
    if rest:
        done = whole * rows
        blocks.append((Tile("band", piece.row + done, rest, piece.key + done, rest + width - 1), 1))
    return blocks


def _band_mask(rows: int, width: int, dtype: torch.dtype, device: str) -> Tensor:
    """Row t of a block sees its keys t .. t + width - 1."""
    ahead = torch.arange(rows + width - 1, device=device) - torch.arange(rows, device=device)[:, None]
    return torch.zeros_like(ahead, dtype=dtype).masked_fill((ahead < 0) | (ahead >= width), -torch.inf)
