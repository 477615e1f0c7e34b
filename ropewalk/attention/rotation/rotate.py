"""Turning queries and keys: angles in float64, rounded after sine and cosine, each set of places turned once.

Legend: b batch, h head, n token, d head dimension.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ropewalk.attention.layout.shared import once
from ropewalk.attention.rotation.precision import compute_dtype
from ropewalk.frequencies import Table

FEW = 64  # places, among which it does not pay to look for repetition


class Rotation(NamedTuple):
    """What vectors are turned by: [tokens, pairs], rounded once."""

    cos: Tensor
    sin: Tensor


def rotation_at(places: Tensor, table: Table, growth: Tensor) -> Rotation:
    """cos and sin at these places in float64, times exp(growth * log_decay) where theta has a real part."""
    grown = (growth,) if table.log_decay.any() else ()
    size = 2 * len(places) * len(table.inv_freq)
    return once("turn", None, (places, *table, *grown), lambda: _turn_at(places, table, growth), size)


def _turn_at(places: Tensor, table: Table, growth: Tensor) -> Rotation:
    if len(places) > FEW:
        places, index = torch.unique_consecutive(places, return_inverse=True)
    angle = places.double()[:, None] * table.inv_freq
    turn = angle.cos(), angle.sin()
    if len(places) < len(growth):
        turn = turn[0][index], turn[1][index]
    if table.log_decay.any():
        size = torch.exp(growth.double()[:, None] * table.log_decay)
        turn = size * turn[0], size * turn[1]
    return Rotation(*turn)


def rotate(x_bhnd: Tensor, turn: Rotation, interleaved: bool) -> Tensor:
    """Each pair (a, b) becomes (a cos - b sin, a sin + b cos); dimensions beyond the pairs stay."""
    precision = compute_dtype(x_bhnd.dtype)
    cos, sin = (part.to(x_bhnd.device, precision) for part in turn)
    output: Tensor = RotateFunction.apply(x_bhnd, cos, sin, interleaved)  # type: ignore[no-untyped-call]
    return output


def expand_rotation(turn: Rotation, interleaved: bool) -> Rotation:
    """The same turn with a number for every dimension of its pairs, the sign of the sine included."""
    cos, sin = turn
    if interleaved:
        return Rotation(cos.repeat_interleave(2, -1), torch.stack([-sin, sin], -1).flatten(-2))
    return Rotation(torch.cat([cos, cos], -1), torch.cat([-sin, sin], -1))


def rotate_few(x_bhnd: Tensor, turn: Rotation, interleaved: bool) -> Tensor:
    """The same as `rotate` by a `expand_rotation` turn, for a token or a few: fewer calls, more passes, no gradient."""
    cos, sin = turn
    size = cos.shape[-1]
    own = x_bhnd[..., :size] if size < x_bhnd.shape[-1] else x_bhnd
    across = own.unflatten(-1, (-1, 2)).flip(-1).flatten(-2) if interleaved else own.roll(size // 2, -1)  # type: ignore[no-untyped-call]
    out = torch.addcmul(own * cos, across, sin).to(x_bhnd.dtype)
    return out if own is x_bhnd else torch.cat([out, x_bhnd[..., size:]], -1)


class RotateFunction(torch.autograd.Function):
    """Two passes over memory each way, where a chain of products and a concatenation would take six."""

    @staticmethod
    def forward(ctx: Any, x_bhnd: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
        """The turned vectors."""
        ctx.save_for_backward(cos, sin)
        ctx.interleaved = interleaved
        return _rotated(x_bhnd, cos, sin, interleaved)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        """The transpose of a turn is the turn the other way."""
        cos, sin = ctx.saved_tensors
        return _rotated(grads[0], cos, -sin, ctx.interleaved), None, None, None


def _rotated(x_bhnd: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
    """Half precision is widened and rounded whole: halves of rows convert one number at a time."""
    wide_bhnd = x_bhnd.to(cos.dtype)
    out = torch.empty_like(wide_bhnd, memory_format=torch.contiguous_format)
    pairs = cos.shape[-1]
    (a, b), (turned_a, turned_b) = (_halves(each, pairs, interleaved) for each in (wide_bhnd, out))
    torch.mul(a, cos, out=turned_a).addcmul_(b, sin, value=-1)
    torch.mul(b, cos, out=turned_b).addcmul_(a, sin)
    out[..., 2 * pairs :] = wide_bhnd[..., 2 * pairs :]
    return out.to(x_bhnd.dtype)


def _halves(x_bhnd: Tensor, pairs: int, interleaved: bool) -> tuple[Tensor, Tensor]:
    """The first and the second of each pair, as views."""
    if interleaved:
        return x_bhnd[..., 0 : 2 * pairs : 2], x_bhnd[..., 1 : 2 * pairs : 2]
    return x_bhnd[..., :pairs], x_bhnd[..., pairs : 2 * pairs]


def is_identity(places: Tensor, table: Table) -> bool:
    """Whether turning by these places changes nothing."""
    return not (places.any() and table.inv_freq.any()) and not table.log_decay.any()
