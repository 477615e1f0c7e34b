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

from ropewalk.attention.case import Case
from ropewalk.attention.precision import widened
from ropewalk.attention.strands import Strand
from ropewalk.attention.variants import Variants

BLOCK = 128

# The bias at [queries, keys]: from the distances shown and the block's rows, [heads or 1, queries, keys].
BiasOf = Callable[[Tensor, slice], Tensor]


def why_not(case: Case) -> str | None:
    """Why this way cannot carry the case: it carries every one."""
    return None


def direct(turned: Variants, v_bgjd: Tensor, strands: Sequence[Strand], bias_of: BiasOf | None) -> Tensor:
    """The attention of all strands together."""
    length = turned.q[0].shape[2]
    blocks = [slice(first, min(first + BLOCK, length)) for first in range(0, length, BLOCK)]

    def block(rows: slice) -> Tensor:
        return _block(rows, turned, v_bgjd, strands, bias_of)

    if not torch.is_grad_enabled():
        return torch.cat([block(rows) for rows in blocks], 2)
    return torch.cat([checkpoint(block, rows, use_reentrant=False) for rows in blocks], 2)


def _block(rows: slice, turned: Variants, v_bgjd: Tensor, strands: Sequence[Strand], bias_of: BiasOf | None) -> Tensor:
    """One block of rows against all keys that any of them sees."""
    pairs = [(strand, job) for strand, job in zip(strands, turned.jobs, strict=True) if _meet(strand.rows, rows)]
    keys = _keys(rows, [strand for strand, _ in pairs])
    logit = None
    for strand, job in pairs:
        product = _product(turned.q[job.q][:, :, rows], turned.k[job.k][:, :, keys])
        if bias_of is not None:
            product = product + bias_of(_shown(strand, rows, keys).to(product.device), rows).to(product.dtype)
        inside = _inside(strand, rows, keys).to(product.device)
        logit = torch.where(inside, product, -torch.inf if logit is None else logit)
    if logit is None:
        return v_bgjd.new_zeros(*turned.q[0].shape[:2], rows.stop - rows.start, v_bgjd.shape[-1])
    return _weighted(logit, v_bgjd[:, :, keys].to(logit.dtype)).to(v_bgjd.dtype)


def _meet(one: slice, other: slice) -> bool:
    return bool(one.start < other.stop and other.start < one.stop)


def _keys(rows: slice, strands: Sequence[Strand]) -> slice:
    """The keys that any row of the block sees in any strand."""
    seen = [(start[stop > start], stop[stop > start]) for start, stop in (_bounds(each, rows) for each in strands)]
    starts, stops = (torch.cat([each[side] for each in seen]) if seen else torch.zeros(0) for side in (0, 1))
    return slice(int(starts.min()), int(stops.max())) if len(starts) else slice(0, 0)


def _bounds(strand: Strand, rows: slice) -> tuple[Tensor, Tensor]:
    """The strand's bounds over the block's rows, empty where it has none."""
    bounds = []
    for bound in (strand.start, strand.stop):
        whole = torch.zeros(rows.stop - rows.start, dtype=torch.int64)
        first, stop = max(rows.start, strand.rows.start), min(rows.stop, strand.rows.stop)
        whole[first - rows.start : stop - rows.start] = bound[first - strand.rows.start : stop - strand.rows.start]
        bounds.append(whole)
    return bounds[0], bounds[1]


def _inside(strand: Strand, rows: slice, keys: slice) -> Tensor:
    start, stop = _bounds(strand, rows)
    j = torch.arange(keys.start, keys.stop)
    return (start[:, None] <= j) & (j < stop[:, None])


def _shown(strand: Strand, rows: slice, keys: slice) -> Tensor:
    """The distances shown where the strand is inside, 0 elsewhere."""
    first, stop = max(rows.start, strand.rows.start), min(rows.stop, strand.rows.stop)
    places = strand.q_at.new_zeros(rows.stop - rows.start)
    places[first - rows.start : stop - rows.start] = strand.q_at[first - strand.rows.start : stop - strand.rows.start]
    return (places[:, None] - strand.k_at[keys]).where(_inside(strand, rows, keys), 0)


def _product(q_bhid: Tensor, k_bgjd: Tensor) -> Tensor:
    """q k / sqrt(d) with grouped heads, without repeating keys."""
    groups, rows = k_bgjd.shape[1], q_bhid.shape[2]
    folded = widened(q_bhid).reshape(len(q_bhid), groups, -1, q_bhid.shape[-1])
    product = folded @ widened(k_bgjd).mT / math.sqrt(q_bhid.shape[-1])
    return product.reshape(len(q_bhid), -1, rows, k_bgjd.shape[2])


def _weighted(logit_bhij: Tensor, v_bgjd: Tensor) -> Tensor:
    """Softmax and sum; zeros in a row that sees nothing."""
    seeing = (logit_bhij > -torch.inf).any(-1, keepdim=True)
    weight = torch.softmax(logit_bhij.where(seeing, 0), -1).where(seeing, 0)
    folded = weight.reshape(len(weight), v_bgjd.shape[1], -1, weight.shape[-1])
    return (folded @ v_bgjd).reshape(*weight.shape[:3], v_bgjd.shape[-1])
