"""The frequencies of a rotary module, measured: the answer of a copy of it at positions of our choice."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ropewalk.hf.probe.rotary_output import RotaryOutput, cos_and_sin

PAST_EVERY_SWITCH = 10_000_000  # a position beyond every length at which a model changes its table
SLOWEST = 1e-12  # radians per position: slower pairs stand still in float32 at every length


class RotaryCall(NamedTuple):
    """One call of a rotary module."""

    module: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class LongTable(NamedTuple):
    """The second table of a module that has two: one for short texts and this one for long texts."""

    above: int  # tokens of the longest short text
    inv_freq: tuple[float, ...]
    temperature: float


class PositionTable(NamedTuple):
    """A buffer with sin and cos of every position, side by side."""

    name: str
    rows: int
    sin_first: bool


Measured = tuple[tuple[float, ...], float]  # frequencies, and the factor of cos and sin


def long_table(call: RotaryCall, dims: int, short: Measured, long: Measured) -> LongTable | None:
    """The second of two tables and where it begins; None where the table changes with every length."""
    low, high = 1, PAST_EVERY_SWITCH  # last positions at which the one and the other table is in force
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if measure_table(call, dims, middle) == short else (low, middle)
    return LongTable(low + 1, *long) if measure_table(call, dims, high) == long else None


def measure_table(call: RotaryCall, dims: int, last: int) -> Measured:
    """The frequencies and the temperature of a rotary module for a text up to `last`, at positions 0 and 1."""
    cos, sin = (part.double().reshape(3, -1)[:2] for part in cos_and_sin(_answer(call, [0, 1, last])))
    width = cos.shape[1]
    if width == dims:  # the two halves, or the two of a pair, are equal
        halves = _is_halves(sin)
        cos, sin = (part[:, : width // 2] if halves else part[:, ::2] for part in (cos, sin))
    angles = torch.atan2(sin[1], cos[1])
    return tuple(angles.masked_fill(angles.abs() < SLOWEST, 0).tolist()), float(cos[0, 0])


class Layout(NamedTuple):
    """How many dimensions a rotary module rotates, and whether its pairs are neighbours."""

    dims: int
    interleaved: bool


def layout(call: RotaryCall) -> Layout:
    """The layout of the numbers that a rotary module returns: a number for each dimension, or for each pair."""
    output = _answer(call, [0, 1, 2])
    width = cos_and_sin(output)[1].shape[-1]
    if isinstance(output, Tensor):
        return Layout(2 * width, interleaved=True)
    return Layout(width, interleaved=not _is_halves(output[1].reshape(3, -1)))


def _is_halves(sin: Tensor) -> bool:
    half = sin.shape[-1] // 2
    return torch.equal(sin[..., :half], sin[..., half:])


def _answer(call: RotaryCall, positions: list[int]) -> RotaryOutput:
    x = call.args[0] if call.args else call.kwargs["x"]
    rest, kwargs = other_arguments(call)
    answer: RotaryOutput = copy.deepcopy(call.module).forward(
        x.float(), torch.tensor([positions], device=x.device), *rest, **kwargs
    )
    return answer


def positions_of(call: RotaryCall) -> Tensor:
    """The positions that a rotary module was called with."""
    positions = call.args[1] if len(call.args) > 1 else call.kwargs.get("position_ids")
    return positions if isinstance(positions, Tensor) else torch.zeros(1)


def rotation_along(call: RotaryCall, axis: int) -> RotaryOutput:
    """The answer of a copy of a rotary module to tokens that stand at 1 along one axis and at 0 along the others."""
    positions = torch.zeros_like(positions_of(call))
    positions[axis] = 1
    rest, kwargs = other_arguments(call)
    x = call.args[0] if call.args else call.kwargs["x"]
    answer: RotaryOutput = copy.deepcopy(call.module).forward(x.float(), positions, *rest, **kwargs)
    return answer


def other_arguments(call: RotaryCall) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of a rotary module besides the hidden states and the positions."""
    kwargs = {name: value for name, value in call.kwargs.items() if name not in ("x", "position_ids")}
    return list(call.args[2:]), kwargs


def layer_type(call: RotaryCall | None) -> str | None:
    """The layer type among these arguments."""
    rest, kwargs = other_arguments(call) if call else ([], {})
    return next((value for value in (*rest, *kwargs.values()) if isinstance(value, str)), None)
