"""Attention by matmul in blocks of rows: slower, and able to carry everything the equation has.

Memory stays linear in the text, in the backward pass too, where each block is computed again.

Legend: b batch, h query head, g key head, r query heads of one key head, i query, j key, d head dimension.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ropewalk.attention.layout.segments import Segment
from ropewalk.attention.problem import Problem
from ropewalk.attention.rotation.precision import to_compute_dtype
from ropewalk.attention.rotation.rotated_copies import RotatedCopies
from ropewalk.attention.torch_kernels.softmax import capped, softmax

BLOCK = 128

# The bias at [queries, keys]: from the distances shown and the block's rows, [heads or 1, queries, keys].
BiasOf = Callable[[Tensor, slice], Tensor]


def why_not(case: Problem) -> str | None:
    """Why this way cannot carry the case: it carries every one."""
    return None


def dense(
    turned: RotatedCopies,
    strands: Sequence[Segment],
    bias_of: BiasOf | None,
    softcap: float | None,
    sink_h: Tensor | None,
) -> Tensor:
    """The attention of all strands together, in the type of the values."""
    length = turned.q[0].shape[2]
    blocks = [slice(first, min(first + BLOCK, length)) for first in range(0, length, BLOCK)]

    def block(rows: slice) -> Tensor:
        parts = _parts(rows, turned, strands, bias_of, softcap)
        if parts is None:
            q, v = turned.q[0], turned.v[0]
            return v.new_zeros(*q.shape[:2], rows.stop - rows.start, v.shape[-1])
        return _weighted(*parts, sink_h)

    if not torch.is_grad_enabled():
        return torch.cat([block(rows) for rows in blocks], 2)
    return torch.cat([checkpoint(block, rows, use_reentrant=False) for rows in blocks], 2)


def _parts(
    rows: slice, turned: RotatedCopies, strands: Sequence[Segment], bias_of: BiasOf | None, softcap: float | None
) -> tuple[Tensor, Tensor] | None:
    """The logits of a block of rows against the keys that any of them sees, one strand's after the other's, and the
    keys' values; nothing where no row sees a key."""
    logits, values = [], []
    for strand, job in zip(strands, turned.jobs, strict=True):
        start, stop = _bounds(strand, rows)
        seeing = stop > start
        if not seeing.any():
            continue
        keys = slice(int(start[seeing].min()), int(stop[seeing].max()))
        j = torch.arange(keys.start, keys.stop)
        inside = ((start[:, None] <= j) & (j < stop[:, None])).to(turned.q[job.q].device)
        logit = _product(turned.q[job.q][:, :, rows], turned.k[job.k][:, :, keys])
        if bias_of is not None:
            shown = (_of_block(strand.q_at, strand, rows)[:, None] - strand.k_at[keys]).to(logit.device)
            logit = logit + bias_of(shown.where(inside, 0), rows).to(logit.dtype)
        logits.append(capped(logit, softcap).masked_fill(~inside, -torch.inf))
        values.append(turned.v[job.v][:, :, keys])
    return (_joined(logits, 3), _joined(values, 2)) if logits else None


def _joined(parts: list[Tensor], dim: int) -> Tensor:
    return torch.cat(parts, dim) if len(parts) > 1 else parts[0]


def _bounds(strand: Segment, rows: slice) -> tuple[Tensor, Tensor]:
    """The strand's bounds over the block's rows, empty where it has none."""
    return _of_block(strand.start, strand, rows), _of_block(strand.stop, strand, rows)


def _of_block(own: Tensor, strand: Segment, rows: slice) -> Tensor:
    """What the strand has for each of its rows, for the block's rows; 0 for those that are not the strand's."""
    whole = own.new_zeros(rows.stop - rows.start)
    first, stop = max(rows.start, strand.rows.start), min(rows.stop, strand.rows.stop)
    if first < stop:
        whole[first - rows.start : stop - rows.start] = own[first - strand.rows.start : stop - strand.rows.start]
    return whole


def _product(q_bhid: Tensor, k_bgjd: Tensor) -> Tensor:
    """q k / sqrt(d) with grouped heads, without repeating keys."""
    groups, rows = k_bgjd.shape[1], q_bhid.shape[2]
    folded = to_compute_dtype(q_bhid).reshape(len(q_bhid), groups, -1, q_bhid.shape[-1])
    product = folded @ to_compute_dtype(k_bgjd).mT / math.sqrt(q_bhid.shape[-1])
    return product.reshape(len(q_bhid), -1, rows, k_bgjd.shape[2])


def _weighted(logit_bhij: Tensor, v_bgjd: Tensor, sink_h: Tensor | None) -> Tensor:
    """Softmax and sum; zeros in a row that sees nothing."""
    seeing = (logit_bhij > -torch.inf).any(-1, keepdim=True)
    sink_hid = None if sink_h is None else sink_h[:, None, None]
    weight = softmax(logit_bhij.where(seeing, 0), sink_hid).where(seeing, 0)
    folded = weight.reshape(len(weight), v_bgjd.shape[1], -1, weight.shape[-1])
    output = folded @ v_bgjd.to(weight.dtype)
    return output.reshape(*weight.shape[:3], v_bgjd.shape[-1]).to(v_bgjd.dtype)
