"""Leaving out far keys that provably weigh nothing: a head whose bias falls steeply becomes a narrow band.

No logit of row i is above |q_i| max_j |k_j| / sqrt d, and every row sees its nearest key, whose logit is computed. So
all keys beyond T distances together have at most this share of a row's weight:

    sum_{d beyond T} exp(f(d))  *  exp(demand)  /  exp(f(nearest)),
    demand = max_i ( |q_i| max_j |k_j| - q_i k_nearest(i) ) / sqrt d

T is the smallest distance that keeps this share below the rounding of the numbers' type. f may have any shape: where it
does not fall, or norms are large, nothing is left out. Norms are taken for each batch row.

Legend: b batch, h query head, g key head, i query, j key, d head dimension, x distances from the nearest on.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.linalg import vecdot, vector_norm

from ropewalk.attention.rotation.rotate import LOG2_E, to_compute_dtype

# The base-2 logarithm of the share of a row's weight that may be left out: less than rounding takes.
NEGLIGIBLE = {torch.float64: -56, torch.float32: -24, torch.float16: -16, torch.bfloat16: -16}
SMALLEST_SHARE = 1e-300  # below it float64 does not resolve shares
NORM_MARGIN = 1.001  # margin on norms; in a thousand dimensions float32 is right to 1e-4
FEWEST_QUERIES = 128  # queries; for fewer, the norms of all keys cost more than they save
FEWEST_PAIRS = 2**20  # pairs of a head; for fewer, the norms cost more than 2 % of the attention
NORM_TOKENS = 1024  # tokens whose norms are computed together: what fits the cache
WORTH = 0.125  # share of a head's pairs that separate calls must save


class HeadBand(NamedTuple):
    """Some heads of some batch rows, their key heads, and how many distances they compute."""

    batch: slice
    heads: slice
    groups: slice
    width: int


def all_heads(q_bhid: Tensor, k_bgjd: Tensor, width: int) -> list[HeadBand]:
    """All heads of all rows at one width."""
    batch, heads = q_bhid.shape[:2]
    return [HeadBand(slice(0, batch), slice(0, heads), slice(0, k_bgjd.shape[1]), width)]


def head_bands(f_hx: Tensor, q_bhid: Tensor, k_bgjd: Tensor, near: slice, block: int) -> list[HeadBand]:
    """All heads of all batch rows, in as few bands as their widths allow.

    `near` are the rows' nearest keys. `block` is how many rows are computed together: a head costs that many more keys
    than its width.
    """
    everything = all_heads(q_bhid, k_bgjd, f_hx.shape[-1])
    visible_i = torch.arange(near.start + 1, near.stop + 1).clamp(max=f_hx.shape[-1])
    if q_bhid.shape[2] < FEWEST_QUERIES or visible_i.sum() < FEWEST_PAIRS:
        return everything
    mass_hx = torch.exp2((f_hx - f_hx.amax(-1, keepdim=True)) * LOG2_E)
    beyond_hx = mass_hx.flip(-1).cumsum(-1).flip(-1)
    allowed_h = mass_hx[:, 0] * 2.0 ** NEGLIGIBLE[q_bhid.dtype] / NORM_MARGIN
    if (_worthwhile(_widths(beyond_hx, allowed_h), visible_i, block) == f_hx.shape[-1]).all():
        return everything  # whatever the norms
    allowed_bh = allowed_h * torch.exp(-_demand(q_bhid, k_bgjd, near))
    return _group(_worthwhile(_widths(beyond_hx, allowed_bh), visible_i, block), k_bgjd.shape[1])


def _widths(beyond_hx: Tensor, allowed_bh: Tensor) -> Tensor:
    """The smallest number of distances beyond which no more weight is left than allowed; NaN allows nothing."""
    negligible_bhx = (beyond_hx <= allowed_bh[..., None]) & (allowed_bh[..., None] > SMALLEST_SHARE)
    return (~negligible_bhx).sum(-1).clamp(min=1).cpu()


def _demand(q_bhid: Tensor, k_bgjd: Tensor, near: slice) -> Tensor:
    """By how much a row's logits may exceed that of its nearest key, [batch, heads], float64."""
    keys, queries, nearest = (torch.split(x, NORM_TOKENS, 2) for x in (k_bgjd, q_bhid, k_bgjd[:, :, near]))
    longest_bg = torch.stack([vector_norm(to_compute_dtype(k), dim=-1).amax(-1) for k in keys]).amax(0) * NORM_MARGIN
    above = []
    for q, k in zip(queries, nearest, strict=True):
        q_bgrid = to_compute_dtype(q).unflatten(1, (k.shape[1], -1))  # type: ignore[no-untyped-call]
        nearest_bgri = vecdot(q_bgrid, to_compute_dtype(k)[:, :, None])
        above.append((vector_norm(q_bgrid, dim=-1) * longest_bg[:, :, None, None] - nearest_bgri).amax(-1))
    return torch.stack(above).amax(0).flatten(1).double() / math.sqrt(q_bhid.shape[-1])


def _worthwhile(width_bh: Tensor, visible_i: Tensor, block: int) -> Tensor:
    """The widths that save enough; the full width where they do not."""
    computed_bh = torch.minimum(visible_i, (width_bh + block)[..., None]).sum(-1)
    return width_bh.where(computed_bh <= (1 - WORTH) * visible_i.sum(), int(visible_i[-1]))


def _group(width_bh: Tensor, groups: int) -> list[HeadBand]:
    """Neighbouring heads of one width together, where the query heads of each key head stay together."""
    alike = bool((width_bh == width_bh[:1]).all())
    rows = [slice(0, len(width_bh))] if alike else [slice(b, b + 1) for b in range(len(width_bh))]
    return [band for row in rows for band in _bands_of_row(row, width_bh[row.start].tolist(), groups)]


def _bands_of_row(row: slice, widths: Sequence[int], groups: int) -> list[HeadBand]:
    members = len(widths) // groups
    bands = []
    for width, run in itertools.groupby(range(len(widths)), key=widths.__getitem__):
        heads = list(run)
        first, stop = heads[0], heads[-1] + 1
        inner = (-(-first // members) * members, stop // members * members)  # whole key heads lie between these
        edges = sorted({first, *(edge for edge in inner if first < edge < stop), stop})
        for start, end in itertools.pairwise(edges):
            key_heads = slice(start // members, (end - 1) // members + 1)
            bands.append(HeadBand(row, slice(start, end), key_heads, width))
    return bands
