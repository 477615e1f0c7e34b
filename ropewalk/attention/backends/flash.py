"""Attention by fused kernels: one call for each tile, the parts merged by their log-sum-exp.

The backward pass calls the kernel's backward for each tile with the output and the log-sum-exp of the whole. Then the
softmax of the tile divides by the sum over all keys, and its gradients add up to the exact ones. A bias that all keys
of a row share is added to the log-sum-exp of the part, and taken from that of the whole for the part's backward pass.

Legend: b batch, h query head, g key head, i query, j key, d head dimension, n blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ropewalk.attention.backends.backend import Backend
from ropewalk.attention.layout.segments import Tile
from ropewalk.attention.problem import AttentionInputs, Problem
from ropewalk.attention.rotation.rotate import RotatedCopies, SegmentInputs, compute_dtype
from ropewalk.attention.torch_kernels import fused
from ropewalk.attention.torch_kernels.fused import PartialAttention
from ropewalk.attention.torch_kernels.softmax import add_sinks, sink_gradient

# Rows of a band's blocks, as measured: the backward pass in half precision is faster with larger ones.
FORWARD_ROWS = 64
BACKWARD_ROWS = {
    torch.float32: 64,
    torch.float64: 64,
    torch.bfloat16: 256,
    torch.float16: 256,
}
TOKENS_AT_ONCE = 1024  # of batch rows that share a call; with longer ones a call costs nothing beside its work
KEYS_AT_ONCE = 8192  # keys whose gradients are in memory at a time
SCATTERED = 8  # rows of a tile: with fewer, a kernel's call costs more than its work


def why_not(problem: Problem) -> str | None:
    """Why this backend does not support a problem, or nothing."""
    if problem.extension.biases and problem.row_biases is None:
        return f"the fused kernels add no bias that differs between the keys of a row ({problem.biases})"
    if problem.softcap is not None:
        return f"the fused kernels have no cap on logits (softcap {problem.softcap:g})"
    tiles = sum(len(segment.tiles) for segment in problem.segments)
    if tiles > max(problem.queries / SCATTERED, 4 * len(problem.segments)):
        return f"positions scatter the spans into {tiles} tiles for {problem.queries} queries"
    if problem.value_dim != problem.head_dim:
        return "the fused kernels need values of the same size as queries"
    # On other devices a matmul replaces a missing kernel; on cuda other backends are faster than that.
    if problem.device.type == "cuda":
        return fused.why_no_kernel(problem.device, problem.dtype, problem.head_dim)
    return None


def why(problem: Problem) -> str:
    """What this backend does with a problem."""
    tiles = [tile for segment in problem.segments for tile in segment.tiles]
    pairs = sum(tile.pairs for tile in tiles)
    count = f"{len(tiles)} tile{'s' * (len(tiles) != 1)}"
    replaced = fused.why_matmul(problem.device, problem.dtype, problem.head_dim)
    bias = f", rows of a part weighted by their bias ({problem.biases})" if problem.extension.biases else ""
    return f"{count} by fused kernels, {pairs:,} query-key pairs{bias}{replaced}"


def flash(copies: RotatedCopies, sink_h: Tensor | None, biases_hi: Sequence[Tensor] | None = None) -> Tensor:
    """The attention of all segments together, and of the model's sinks where it has any.

    `biases_hi` are added to the logits of each segment: the rows' numbers, the same for all their keys.
    """
    jobs = [(job, None if biases_hi is None else biases_hi[n]) for n, job in enumerate(copies.jobs)]
    arguments = (jobs, (len(copies.q), len(copies.k)), sink_h, *copies.q, *copies.k, *copies.v)
    output: Tensor = FlashFunction.apply(*arguments)  # type: ignore[no-untyped-call]
    return output


BiasedSegment = tuple[SegmentInputs, Tensor | None]  # with the bias of every query, [heads, queries]


class FlashFunction(torch.autograd.Function):
    """Forward and backward over segments. Where one call of a kernel is all, its results are the results.

    Otherwise one batch row at a time, so that blocks are views and nothing is copied. Short rows are computed several
    at a time, as if their heads were those of one row, and on a GPU all are: there every call costs time.
    """

    @staticmethod
    def forward(
        ctx: Any, jobs: Sequence[BiasedSegment], sizes: tuple[int, int], sink_h: Tensor | None, *tensors: Tensor
    ) -> Tensor:
        """The output. `sizes` counts the copies of queries and of keys in `tensors`; the values follow."""
        qs, ks, vs = _split(tensors, sizes)
        ctx.jobs, ctx.sizes, ctx.whole_call = jobs, sizes, _whole_call(jobs, qs, ks)
        if ctx.whole_call is not None:
            out, lse = fused.forward(qs[0], ks[0], vs[0], **ctx.whole_call._asdict())
        else:
            out, lse = _attend_in_parts(jobs, qs, ks, vs)
        if sink_h is not None:
            out, lse = add_sinks(PartialAttention(out, lse), sink_h)
        ctx.save_for_backward(*tensors, out, lse, sink_h)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of the same tensors."""
        *tensors, out, lse, sink_h = ctx.saved_tensors
        by_sink = sink_gradient(grads[0], PartialAttention(out, lse), sink_h) if ctx.needs_input_grad[2] else None
        if ctx.whole_call is not None:
            q, k, v = tensors
            slopes = fused.backward(grads[0], q, k, v, PartialAttention(out, lse), **ctx.whole_call._asdict())
            return None, None, by_sink, *slopes
        totals = [torch.zeros(x.shape, dtype=compute_dtype(x.dtype), device=x.device) for x in tensors]
        (qs, ks, vs), (by_q, by_k, by_v) = _split(tensors, ctx.sizes), _split(totals, ctx.sizes)
        for b in _rows_of_one_call(len(out), ks):
            grad, whole = _row(grads[0], b), PartialAttention(_row(out, b), _row(lse, b))
            for job, bias_hi in ctx.jobs:
                q, k, v = _row(qs[job.q], b), _row(ks[job.k], b), _row(vs[job.v], b)
                part = whole if bias_hi is None else whole._replace(lse_bhi=whole.lse_bhi - _bias_of_heads(bias_hi, q))
                for call in _kernel_calls(job, q, k, v, BACKWARD_ROWS[out.dtype]):
                    call.backward(grad, part, (_row(by_q[job.q], b), _row(by_k[job.k], b), _row(by_v[job.v], b)))
        return None, None, by_sink, *(total.to(tensor.dtype) for total, tensor in zip(totals, tensors, strict=True))


class WholeCall(NamedTuple):
    """The one call of a kernel that computes everything."""

    triangle: bool
    window: int | None


def _whole_call(jobs: Sequence[BiasedSegment], qs: Sequence[Tensor], ks: Sequence[Tensor]) -> WholeCall | None:
    """That call, where one segment without a bias has one tile, of all queries and all keys."""
    if len(jobs) != 1 or jobs[0][1] is not None:
        return None
    tiles = jobs[0][0].tiles
    (tile, window), *others = _windows(tiles) if fused.has_window_kernel(qs[0]) else [(tile, None) for tile in tiles]
    whole = (tile.rows, tile.keys) == (qs[0].shape[2], ks[0].shape[2])
    if others or not whole or (tile.kind == "band" and window is None):
        return None
    return WholeCall(tile.kind == "triangle", window)


def _attend_in_parts(
    jobs: Sequence[BiasedSegment], qs: Sequence[Tensor], ks: Sequence[Tensor], vs: Sequence[Tensor]
) -> PartialAttention:
    """The attention of all segments, merged from calls for their tiles."""
    out = torch.zeros(*qs[0].shape[:-1], vs[0].shape[-1], dtype=vs[0].dtype, device=vs[0].device)
    lse = torch.full(qs[0].shape[:-1], -torch.inf, dtype=compute_dtype(out.dtype), device=out.device)
    for b in _rows_of_one_call(len(out), ks):
        whole, empty = PartialAttention(_row(out, b), _row(lse, b)), torch.ones(out.shape[2], dtype=torch.bool)
        for job, bias_hi in jobs:
            q, k, v = _row(qs[job.q], b), _row(ks[job.k], b), _row(vs[job.v], b)
            bias = None if bias_hi is None else _bias_of_heads(bias_hi, q)
            for call in _kernel_calls(job, q, k, v, FORWARD_ROWS):
                call.forward(whole, empty, bias)
    return PartialAttention(out, lse)


def _split(tensors: Sequence[Tensor], sizes: tuple[int, int]) -> tuple[Sequence[Tensor], ...]:
    """Queries, keys and values."""
    queries, keys = sizes
    return tensors[:queries], tensors[queries : queries + keys], tensors[queries + keys :]


def _rows_of_one_call(batch: int, keys: Sequence[Tensor]) -> list[slice]:
    """The batch rows that share a kernel's call."""
    if keys[0].device.type == "cuda":
        return [slice(0, batch)]
    step = max(1, TOKENS_AT_ONCE // max(k_bgjd.shape[2] for k_bgjd in keys))
    return [slice(first, first + step) for first in range(0, batch, step)]


def _row(x_bhi: Tensor, rows: slice) -> Tensor:
    """Some batch rows as one that has the heads of all; of a contiguous tensor a view."""
    return x_bhi[rows].flatten(0, 1)


def _bias_of_heads(bias_hi: Tensor, q_hid: Tensor) -> Tensor:
    """The same biases for the heads of every batch row."""
    return bias_hi.repeat(len(q_hid) // len(bias_hi), 1)


class KernelCall(NamedTuple):
    """One call of a kernel in one batch row: a tile, or `blocks` equal tiles. Each begins as many rows and keys after
    the one before as a tile has rows."""

    q_hid: Tensor
    k_gjd: Tensor
    v_gjd: Tensor
    tile: Tile  # the first
    blocks: int = 1
    mask_ij: Tensor | None = None
    window: int | None = None

    def _queries(self, x_hi: Tensor) -> Tensor:
        return _blocks(x_hi, self.tile.row, self.tile.rows, self.blocks, self.tile.rows)

    def _keys(self, x_gj: Tensor) -> Tensor:
        return _blocks(x_gj, self.tile.key, self.tile.keys, self.blocks, self.tile.rows)

    def forward(self, whole: PartialAttention, empty: Tensor, bias_hi: Tensor | None) -> None:
        """Add this part to the whole; `empty` marks the rows that have no part yet."""
        triangle = self.tile.kind == "triangle"
        q, k, v = self._queries(self.q_hid), self._keys(self.k_gjd), self._keys(self.v_gjd)
        part = fused.forward(q, k, v, triangle=triangle, mask_ij=self.mask_ij, window=self.window)
        if bias_hi is not None:
            part = part._replace(lse_bhi=part.lse_bhi + self._queries(bias_hi))
        rows = self._queries(empty[None, :])
        target = PartialAttention(*(self._queries(tensor) for tensor in whole))
        if rows.all():
            target.out_bhid.copy_(part.out_bhid)
            target.lse_bhi.copy_(part.lse_bhi)
        else:
            _merge(target, part)
        rows.fill_(False)

    def backward(self, grad_hid: Tensor, whole: PartialAttention, totals: tuple[Tensor, Tensor, Tensor]) -> None:
        """Add the gradients to the totals, a few blocks at a time: keys in several blocks have a gradient in each."""
        most = max(1, KEYS_AT_ONCE // self.tile.keys)
        for first in range(0, self.blocks, most):
            shift, count = first * self.tile.rows, min(most, self.blocks - first)
            first_tile = self.tile._replace(row=self.tile.row + shift, key=self.tile.key + shift)
            self._replace(tile=first_tile, blocks=count)._backward(grad_hid, whole, totals)

    def _backward(self, grad_hid: Tensor, whole: PartialAttention, totals: tuple[Tensor, Tensor, Tensor]) -> None:
        q, k, v = self._queries(self.q_hid), self._keys(self.k_gjd), self._keys(self.v_gjd)
        output = PartialAttention(*(self._queries(tensor).contiguous() for tensor in whole))
        triangle = self.tile.kind == "triangle"
        grad = self._queries(grad_hid).contiguous()
        part = fused.backward(grad, q, k, v, output, triangle=triangle, mask_ij=self.mask_ij, window=self.window)
        by_q, by_k, by_v = totals
        self._queries(by_q).add_(part.q_bhid)
        self._add_by_key(by_k, part.k_bgjd)
        self._add_by_key(by_v, part.v_bgjd)

    def _add_by_key(self, total_gjd: Tensor, part_ngjd: Tensor) -> None:
        """Blocks of keys may overlap: add them in slices as long as their distance, which do not."""
        apart = self.tile.rows if self.blocks > 1 else self.tile.keys
        for first in range(0, self.tile.keys, apart):
            part = part_ngjd[:, :, first : first + apart]
            _blocks(total_gjd, self.tile.key + first, part.shape[2], self.blocks, apart).add_(part)


def _blocks(x_hi: Tensor, first: int, size: int, count: int, step: int) -> Tensor:
    """A view [count, heads, size, ...] of blocks along the second dimension of [heads, tokens, ...]."""
    if count == 1:
        return x_hi[None, :, first : first + size]
    covered = x_hi[:, first : first + (count - 1) * step + size]
    return covered.unfold(1, size, step).movedim(-1, 2).movedim(1, 0)


def _merge(target: PartialAttention, part: PartialAttention) -> None:
    """Two parts of one softmax, weighted by their sums of exponentials; computed in at least float32."""
    total = torch.logaddexp(target.lse_bhi, part.lse_bhi)
    share = torch.exp(part.lse_bhi - total)[..., None]
    working = compute_dtype(target.out_bhid.dtype)
    if working == target.out_bhid.dtype:
        target.out_bhid.lerp_(part.out_bhid, share)
    else:
        target.out_bhid.copy_(torch.lerp(target.out_bhid.to(working), part.out_bhid.to(working), share))
    target.lse_bhi.copy_(total)


def _kernel_calls(job: SegmentInputs, q_hid: Tensor, k_gjd: Tensor, v_gjd: Tensor, rows: int) -> list[KernelCall]:
    """A segment's tiles as calls of a kernel: bands whole where it has windows, else in blocks of so many rows."""
    calls: list[KernelCall] = []
    if fused.has_window_kernel(q_hid):
        return [KernelCall(q_hid, k_gjd, v_gjd, tile, window=width) for tile, width in _windows(job.tiles)]
    for tile in job.tiles:
        width = tile.keys - tile.rows + 1
        if tile.kind != "band":
            calls.append(KernelCall(q_hid, k_gjd, v_gjd, tile))
            continue
        for block, blocks in _band_blocks(tile, width, rows):
            mask = _band_mask(block.rows, width, v_gjd.dtype, str(q_hid.device))
            calls.append(KernelCall(q_hid, k_gjd, v_gjd, block, blocks, mask))
    return calls


def _windows(tiles: Sequence[Tile]) -> list[tuple[Tile, int | None]]:
    """Tiles, each band with its width. A triangle that a band continues is one with it: the first rows of a window have
    fewer keys before them."""
    triangles = {tile.row + tile.rows: tile for tile in tiles if tile.kind == "triangle"}
    joined, windows = set[Tile](), list[tuple[Tile, int | None]]()
    for band in (tile for tile in tiles if tile.kind == "band"):
        width, first = band.keys - band.rows + 1, triangles.get(band.row)
        if first is None or (band.key, width) != (first.key + 1, first.rows):
            windows.append((band, width))
            continue
        rows = first.rows + band.rows
        windows.append((Tile("band", first.row, rows, first.key, rows), width))
        joined.add(first)
    others = [(tile, None) for tile in tiles if tile.kind != "band" and tile not in joined]
    return sorted([*windows, *others], key=lambda call: (-call[0].rows * call[0].keys, call[0].row))


def _band_blocks(band: Tile, width: int, rows: int) -> list[tuple[Tile, int]]:
    """A band as equal blocks of rows, each with the keys that any of its rows sees, and a last shorter one: the first
    of each size, and how many there are."""
    whole, rest = divmod(band.rows, rows)
    blocks = []
    if whole:
        blocks.append((Tile("band", band.row, rows, band.key, rows + width - 1), whole))
    if rest:
        done = whole * rows
        blocks.append((Tile("band", band.row + done, rest, band.key + done, rest + width - 1), 1))
    return blocks


def _band_mask(rows: int, width: int, dtype: torch.dtype, device: str) -> Tensor:
    """Row t of a block sees its keys t .. t + width - 1."""
    ahead = torch.arange(rows + width - 1, device=device) - torch.arange(rows, device=device)[:, None]
    return torch.zeros_like(ahead, dtype=dtype).masked_fill((ahead < 0) | (ahead >= width), -torch.inf)


def _run(inputs: AttentionInputs) -> Tensor:
    problem = inputs.problem
    if problem.row_biases is None:
        return flash(inputs.rotated_copies(), inputs.sink_h)
    pairs = zip(problem.segments, problem.row_biases, strict=True)
    biases_hi = [_widen_to_all_rows(segment.rows, bias_hi, inputs.q_bhid) for segment, bias_hi in pairs]
    return flash(inputs.rotated_copies(), inputs.sink_h, biases_hi)


def _widen_to_all_rows(rows: slice, bias_hi: Tensor, q_bhid: Tensor) -> Tensor:
    """One number for each query, in the precision of the computation: those given for some rows, and 0 elsewhere."""
    dtype = compute_dtype(q_bhid.dtype)
    every_hi = torch.zeros(q_bhid.shape[1:3], dtype=dtype, device=q_bhid.device)
    every_hi[:, rows] = bias_hi.to(q_bhid.device, dtype)
    return every_hi


FLASH = Backend("flash", why_not, why, _run)
