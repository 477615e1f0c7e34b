"""Rotation of queries and keys, and the precision that it is computed in."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ropewalk.attention.layout.segments import Segment, SpanKeys, Tile
from ropewalk.attention.layout.sequences import compute_once
from ropewalk.methods.frequencies import Table

# Half precision is for storage: sums, softmax and angles are computed in at least float32.


# e^x is written 2^(x LOG2_E) in inner loops: torch's exp is 3 times as slow, and 10 to 30 times where it underflows.
LOG2_E = math.log2(math.e)


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """The type in which numbers of this type are summed."""
    return dtype if dtype == torch.float64 else torch.float32


def to_compute_dtype(x: Tensor) -> Tensor:
    """The same numbers in a type to compute with."""
    return x.to(compute_dtype(x.dtype))


# Rotating queries and keys: angles in float64, rounded after sine and cosine; each rotated copy is computed once.
#
# Legend: b batch, h query head (any head in `rotate`), g key head, i query, j key, n token, d head dimension.


FEW_POSITIONS = 64  # positions; among fewer it does not pay to look for repetition


class Rotation(NamedTuple):
    """cos and sin of every token and pair, [tokens, pairs], rounded once."""

    cos: Tensor
    sin: Tensor


class RotationSpec(NamedTuple):
    """How a set of vectors is rotated."""

    positions: Tensor  # of the vectors, or of each pair of each
    table: Table
    growth: Tensor  # the exponent of theta's real part; ignored where it has none

    @property
    def is_identity(self) -> bool:
        """Whether this rotation changes nothing."""
        return is_identity(self.positions, self.table)

    def same(self, other: RotationSpec) -> bool:
        """Whether both rotate alike."""
        pairs = [(self.positions, other.positions), *zip(self.table, other.table, strict=True)]
        if self.table.log_decay.any():
            pairs.append((self.growth, other.growth))
        return all(torch.equal(one, two) for one, two in pairs)


def is_identity(positions: Tensor, table: Table) -> bool:
    """Whether rotating by these positions changes nothing."""
    return not (positions.any() and table.inv_freq.any()) and not table.log_decay.any()


def rotation_at(positions: Tensor, table: Table, growth: Tensor) -> Rotation:
    """cos and sin at these positions in float64, times exp(growth * log_decay) where theta has a real part."""
    decay = (growth,) if table.log_decay.any() else ()
    size = 2 * len(positions) * len(table.inv_freq)
    return compute_once(
        "rotation", None, (positions, *table, *decay), lambda: _rotation_at(positions, table, growth), size
    )


def placed_rotation(spec: RotationSpec, device: torch.device, dtype: torch.dtype) -> Rotation:
    """cos and sin on the device of the vectors and in the precision of their rotation, once for all layers of a pass.

    A GPU computes them itself: at 128k tokens they are 128 MiB in float64, which take longer to copy than to compute.
    """
    where = device if device.type == "cuda" else torch.device("cpu")  # others may lack float64

    def compute() -> Rotation:
        table = Table(*(column.to(where) for column in spec.table))
        rotation = _rotation_at(spec.positions.to(where), table, spec.growth.to(where))
        return Rotation(*(part.to(device, dtype) for part in rotation))

    decay = (spec.growth,) if spec.table.log_decay.any() else ()
    size = 2 * len(spec.positions) * len(spec.table.inv_freq)
    return compute_once("placed rotation", (str(device), dtype), (spec.positions, *spec.table, *decay), compute, size)


def _rotation_at(positions: Tensor, table: Table, growth: Tensor) -> Rotation:
    if positions.dim() > 1:  # one for each pair
        angle = positions.double() * table.inv_freq
        return Rotation(angle.cos(), angle.sin())
    if len(positions) > FEW_POSITIONS:
        positions, index = torch.unique_consecutive(positions, return_inverse=True)
    angle = positions.double()[:, None] * table.inv_freq
    cos, sin = angle.cos(), angle.sin()
    if len(positions) < len(growth):
        cos, sin = cos[index], sin[index]
    if table.log_decay.any():
        size = torch.exp(growth.double()[:, None] * table.log_decay)
        cos, sin = size * cos, size * sin
    return Rotation(cos, sin)


# Rotating vectors.


def rotate(x_bhnd: Tensor, rotation: Rotation, interleaved: bool) -> Tensor:
    """Each pair (a, b) becomes (a cos - b sin, a sin + b cos); dimensions beyond the pairs stay."""
    precision = compute_dtype(x_bhnd.dtype)
    cos, sin = (part.to(x_bhnd.device, precision) for part in rotation)
    output: Tensor = RotateFunction.apply(x_bhnd, cos, sin, interleaved)  # type: ignore[no-untyped-call]
    return output


def expand_rotation(rotation: Rotation, interleaved: bool) -> Rotation:
    """The same rotation with a number for every dimension of its pairs, the sign of the sine included."""
    cos, sin = rotation
    if interleaved:
        return Rotation(cos.repeat_interleave(2, -1), torch.stack([-sin, sin], -1).flatten(-2))
    return Rotation(torch.cat([cos, cos], -1), torch.cat([-sin, sin], -1))


def rotate_few(x_bhnd: Tensor, expanded: Rotation, interleaved: bool) -> Tensor:
    """`rotate` by an expanded rotation, for one token or a few: fewer calls, more passes, no gradient."""
    cos, sin = expanded
    size = cos.shape[-1]
    paired = x_bhnd[..., :size] if size < x_bhnd.shape[-1] else x_bhnd
    across = paired.unflatten(-1, (-1, 2)).flip(-1).flatten(-2) if interleaved else paired.roll(size // 2, -1)  # type: ignore[no-untyped-call]
    out = torch.addcmul(paired * cos, across, sin).to(x_bhnd.dtype)
    return out if paired is x_bhnd else torch.cat([out, x_bhnd[..., size:]], -1)


class RotateFunction(torch.autograd.Function):
    """Two passes over memory in each direction, where a chain of products and a concatenation would take six."""

    @staticmethod
    def forward(ctx: Any, x_bhnd: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
        """The rotated vectors."""
        ctx.save_for_backward(cos, sin)
        ctx.interleaved = interleaved
        return _rotate_whole(x_bhnd, cos, sin, interleaved)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        """The transpose of a rotation is the rotation by the opposite angle."""
        cos, sin = ctx.saved_tensors
        return _rotate_whole(grads[0], cos, -sin, ctx.interleaved), None, None, None


def _rotate_whole(x_bhnd: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
    """Half precision is widened and rounded as a whole: torch converts non-contiguous slices element by element."""
    wide_bhnd = x_bhnd.to(cos.dtype)
    out = torch.empty_like(wide_bhnd, memory_format=torch.contiguous_format)
    pairs = cos.shape[-1]
    (a, b), (rotated_a, rotated_b) = (_halves(tensor, pairs, interleaved) for tensor in (wide_bhnd, out))
    torch.mul(a, cos, out=rotated_a).addcmul_(b, sin, value=-1)
    torch.mul(b, cos, out=rotated_b).addcmul_(a, sin)
    out[..., 2 * pairs :] = wide_bhnd[..., 2 * pairs :]
    return out.to(x_bhnd.dtype)


def _halves(x_bhnd: Tensor, pairs: int, interleaved: bool) -> tuple[Tensor, Tensor]:
    """The first and the second of each pair, as views."""
    if interleaved:
        return x_bhnd[..., 0 : 2 * pairs : 2], x_bhnd[..., 1 : 2 * pairs : 2]
    return x_bhnd[..., :pairs], x_bhnd[..., pairs : 2 * pairs]


# The copies that the segments of a sequence need.


class SegmentInputs(NamedTuple):
    """A segment after rotation: the indices of the copies and values that it reads, and its tiles."""

    q: int
    k: int
    v: int
    tiles: list[Tile]


class RotatedCopies(NamedTuple):
    """Rotated queries and keys, the values, and for each segment which of them it reads."""

    q: list[Tensor]
    k: list[Tensor]
    v: list[Tensor]
    jobs: list[SegmentInputs]


class RotatedKeys(NamedTuple):
    """A copy of keys and how it was rotated; no spec where the keys came rotated."""

    source: Tensor
    spec: RotationSpec | None
    rotated: Tensor


def rotated_copies(
    q_bhid: Tensor, keys: Sequence[SpanKeys], segments: Sequence[Segment], interleaved: bool
) -> RotatedCopies:
    """One copy of the queries for each span, one of the keys for each different rotation; `keys` are the spans'."""
    rotations: list[tuple[RotationSpec, Rotation]] = []

    def rotation_for(spec: RotationSpec) -> Rotation:
        """Sines are expensive: queries and keys share them."""
        for other, rotation in rotations:
            if spec.same(other):
                return rotation
        rotations.append((spec, placed_rotation(spec, q_bhid.device, compute_dtype(q_bhid.dtype))))
        return rotations[-1][1]

    spans = sorted({segment.span for segment in segments})
    queries = [
        _rotated_queries(q_bhid, [one for one in segments if one.span == span], rotation_for, interleaved)
        for span in spans
    ]
    copies: list[RotatedKeys] = []
    values: list[Tensor] = []
    jobs = []
    for segment in segments:
        k_bgjd, v_bgjd = keys[segment.span].k_bgjd, keys[segment.span].v_bgjd
        spec = None if keys[segment.span].rotated else _key_spec(segment)
        k = _index([copy.source is k_bgjd and _alike(copy.spec, spec) for copy in copies])
        if k == len(copies):
            rotated = k_bgjd if spec is None or spec.is_identity else rotate(k_bgjd, rotation_for(spec), interleaved)
            copies.append(RotatedKeys(k_bgjd, spec, rotated))
        v = _index([value is v_bgjd for value in values])
        values += [v_bgjd] * (v == len(values))
        jobs.append(SegmentInputs(spans.index(segment.span), k, v, segment.tiles))
    return RotatedCopies(queries, [copy.rotated for copy in copies], values, jobs)


def _index(matches: list[bool]) -> int:
    """The index of the first match, or of the next element."""
    return matches.index(True) if True in matches else len(matches)


def _alike(one: RotationSpec | None, other: RotationSpec | None) -> bool:
    return one is other if one is None or other is None else one.same(other)


def _rotated_queries(
    q_bhid: Tensor, segments: Sequence[Segment], rotation_for: Callable[[RotationSpec], Rotation], interleaved: bool
) -> Tensor:
    """The queries of one span, each row by the table of its segment; rows without a segment stay."""
    specs = [RotationSpec(segment.q_rotated_to, segment.table, segment.q_at - _origin(segment)) for segment in segments]
    if all(spec.is_identity for spec in specs):
        return q_bhid
    if len(specs) == 1 and len(specs[0].positions) == q_bhid.shape[2]:
        return rotate(q_bhid, rotation_for(specs[0]), interleaved)
    size = (q_bhid.shape[2], len(segments[0].table.inv_freq))
    parts = [rotation_for(spec) for spec in specs]
    whole = Rotation(parts[0].cos.new_ones(size), parts[0].sin.new_zeros(size))
    for segment, rotation in zip(segments, parts, strict=True):
        for column, part in zip(whole, rotation, strict=True):
            column[segment.rows] = part
    return rotate(q_bhid, whole, interleaved)


def _key_spec(segment: Segment) -> RotationSpec:
    return RotationSpec(segment.k_rotated_to, segment.table, _origin(segment) - segment.k_at)


def _origin(segment: Segment) -> Tensor:
    """The position that growth counts from: the furthest query's, so that no key grows."""
    return segment.q_at.max()
