"""Attention by matmul in blocks of rows: slower, but it supports everything that the equation has.

Memory stays linear in the sequence, in the backward pass too, which computes each block again.

Legend: b batch, h query head, g key head, r query heads of one key head, i query, j key, d head dimension.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ropewalk.attention.backends.backend import Backend
from ropewalk.attention.layout.segments import Segment
from ropewalk.attention.problem import AttentionInputs
from ropewalk.attention.rotation.rotate import RotatedCopies, to_compute_dtype
from ropewalk.attention.torch_kernels.softmax import cap_logits, softmax

DENSE_BLOCK = 128

# The bias at [queries, keys]: from effective distances and the block's rows, [heads or 1, queries, keys].
BiasOf = Callable[[Tensor, slice], Tensor]


def dense(
    copies: RotatedCopies,
    segments: Sequence[Segment],
    bias_of: BiasOf | None,
    softcap: float | None,
    sink_h: Tensor | None,
    mask_bhij: Tensor | None = None,
) -> Tensor:
    """The attention of all segments together, in the type of the values."""
    length = copies.q[0].shape[2]
    blocks = [slice(first, min(first + DENSE_BLOCK, length)) for first in range(0, length, DENSE_BLOCK)]

    def block(rows: slice) -> Tensor:
        parts = _parts(rows, copies, segments, bias_of, softcap, mask_bhij)
        if parts is None:
            q, v = copies.q[0], copies.v[0]
            return v.new_zeros(*q.shape[:2], rows.stop - rows.start, v.shape[-1])
        return _weighted_sum(*parts, sink_h)

    if not torch.is_grad_enabled():
        return torch.cat([block(rows) for rows in blocks], 2)
    return torch.cat([checkpoint(block, rows, use_reentrant=False) for rows in blocks], 2)


def _parts(
    rows: slice,
    copies: RotatedCopies,
    segments: Sequence[Segment],
    bias_of: BiasOf | None,
    softcap: float | None,
    mask_bhij: Tensor | None,
) -> tuple[Tensor, Tensor] | None:
    """The logits of a block of rows against the keys that any of them sees, segment after segment, and the values of
    these keys; nothing where no row sees a key."""
    logits, values = [], []
    for segment, job in zip(segments, copies.jobs, strict=True):
        start, stop = (_numbers_of_block(bound, segment, rows) for bound in (segment.start, segment.stop))
        seeing = stop > start
        if not seeing.any():
            continue
        keys = slice(int(start[seeing].min()), int(stop[seeing].max()))
        j = torch.arange(keys.start, keys.stop)
        inside = ((start[:, None] <= j) & (j < stop[:, None])).to(copies.q[job.q].device)
        logit = _product(copies.q[job.q][:, :, rows], copies.k[job.k][:, :, keys])
        if bias_of is not None:
            distance = (_numbers_of_block(segment.q_at, segment, rows)[:, None] - segment.k_at[keys]).to(logit.device)
            logit = logit + bias_of(distance.where(inside, 0), rows).to(logit.dtype)
        logit = cap_logits(logit, softcap)
        if mask_bhij is not None:  # after the cap, as the eager code of transformers adds masks
            logit = logit + mask_bhij[:, :, rows, keys].to(logit.dtype)
        logits.append(logit.masked_fill(~inside, -torch.inf))
        values.append(copies.v[job.v][:, :, keys])
    return (_join(logits, 3), _join(values, 2)) if logits else None


def _join(parts: list[Tensor], dim: int) -> Tensor:
    return torch.cat(parts, dim) if len(parts) > 1 else parts[0]


def _numbers_of_block(per_row: Tensor, segment: Segment, rows: slice) -> Tensor:
    """A number for each of the block's rows, from one for each of the segment's rows; 0 for rows that it does not
    have, so that their bounds are empty."""
    whole = per_row.new_zeros(rows.stop - rows.start)
    first, stop = max(rows.start, segment.rows.start), min(rows.stop, segment.rows.stop)
    if first < stop:
        whole[first - rows.start : stop - rows.start] = per_row[first - segment.rows.start : stop - segment.rows.start]
    return whole


def _product(q_bhid: Tensor, k_bgjd: Tensor) -> Tensor:
    """q k / sqrt(d) with grouped heads, without repeating keys."""
    groups, rows = k_bgjd.shape[1], q_bhid.shape[2]
    folded = to_compute_dtype(q_bhid).reshape(len(q_bhid), groups, -1, q_bhid.shape[-1])
    product = folded @ to_compute_dtype(k_bgjd).mT / math.sqrt(q_bhid.shape[-1])
    return product.reshape(len(q_bhid), -1, rows, k_bgjd.shape[2])


def _weighted_sum(logit_bhij: Tensor, v_bgjd: Tensor, sink_h: Tensor | None) -> Tensor:
    """Softmax and sum; zeros in a row that sees nothing."""
    seeing = (logit_bhij > -torch.inf).any(-1, keepdim=True)
    sink_hid = None if sink_h is None else sink_h[:, None, None]
    weight = softmax(logit_bhij.where(seeing, 0), sink_hid).where(seeing, 0)
    folded = weight.reshape(len(weight), v_bgjd.shape[1], -1, weight.shape[-1])
    output = folded @ v_bgjd.to(weight.dtype)
    return output.reshape(*weight.shape[:3], v_bgjd.shape[-1]).to(v_bgjd.dtype)


def _run(inputs: AttentionInputs) -> Tensor:
    terms, i = inputs.terms, inputs.i

    def bias_of(distance_ij: Tensor, rows: slice) -> Tensor:
        return terms.bias(distance_ij, i[rows, None].expand_as(distance_ij))

    bias = bias_of if terms.extension.biases else None
    return dense(
        inputs.rotated_copies(), inputs.problem.segments, bias, terms.facts.softcap, inputs.sink_h, inputs.mask_bhij
    )


# It supports every problem; its reason is that the others do not.
DENSE = Backend("dense", why_not=lambda problem: None, why=lambda problem: "", run=_run)
