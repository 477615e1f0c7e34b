"""How a layer rotates, by rotary modules: their tables, axes and norms."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ropewalk.attention.rotation.rotate import to_compute_dtype
from ropewalk.errors import DoesNotFit
from ropewalk.hf.probe.capture import RotaryOutput, cos_and_sin, is_rotary_output

# Tokens with several positions, such as those of images: which of them rotates each pair of a layer.


def axes_of(calls: Sequence[RotaryCall]) -> range:
    """The several positions that rotary modules were called with; empty where a token has one."""
    count = max((len(positions_of(call)) for call in calls if positions_of(call).dim() == 3), default=1)
    return range(count if count > 1 else 0)


def axis_of_pairs(dims: list[int], interleaved: bool | None, q_by_axis: Sequence[Tensor]) -> tuple[int, ...]:
    """The axis of each pair, by the queries with NaN where an axis rotates; a pair that never rotates has the first."""
    reached = torch.stack([torch.isnan(q_bhnd).flatten(0, -2).any(0)[dims] for q_bhnd in q_by_axis])
    firsts = reached[:, ::2] if interleaved else reached[:, : len(dims) // 2]
    return tuple(firsts.int().argmax(0).tolist())


# The modules of a model that compute its cos and sin.


def rotary_modules(model: nn.Module) -> list[nn.Module]:
    """The modules that compute the model's cos and sin; refused where there are none."""
    modules = modules_with_rotation(model)
    if not modules:
        raise DoesNotFit.because("model", f"{type(model).__name__} has no module with rotary position embeddings")
    return modules


def has_rotation(model: nn.Module) -> bool:
    """Whether the model has a rotary module."""
    return bool(modules_with_rotation(model))


def modules_with_rotation(model: nn.Module) -> list[nn.Module]:
    """By transformers' usual name, or else by their buffers."""
    modules = list(model.named_modules())
    named = [module for name, module in modules if name.rsplit(".", 1)[-1].startswith("rotary_emb")]
    return named or [module for _, module in modules if any(name.endswith("inv_freq") for name in module._buffers)]


@contextmanager
def watch_rotation(model: nn.Module) -> Iterator[list[nn.Module]]:
    """These modules, and whatever else answers with a rotation while the model reads inside the block."""
    rotary = modules_with_rotation(model)

    def look(module: nn.Module, _: Any, output: Any) -> None:
        if module not in rotary and is_rotary_output(output):
            rotary.append(module)

    leaves = [module for module in model.modules() if next(module.children(), None) is None]
    hooks = [module.register_forward_hook(look) for module in leaves]
    try:
        yield rotary
    finally:
        for hook in hooks:
            hook.remove()


# Norms that follow the rotation: which modules they are, and what they multiply each dimension by.
#
# An RMS norm commutes with a rotation; its weight does not. So queries and keys are divided by the weights before our
# rotation, and the rotated queries are multiplied by both.


class NormsAfter(NamedTuple):
    """The modules whose answers are the queries and keys that attention gets; None where there are none."""

    q: nn.Module | None = None
    k: nn.Module | None = None


@contextmanager
def watch_norms(model: nn.Module) -> Iterator[Callable[[Tensor, Tensor], NormsAfter]]:
    """A function of the queries and keys of a forward inside the block: which norms returned them."""
    answers: list[tuple[nn.Module, Tensor]] = []

    def keep(module: nn.Module, _: Any, answer: Any) -> None:
        if isinstance(answer, Tensor):
            answers.append((module, answer))

    def norms_of(q: Tensor, k: Tensor) -> NormsAfter:
        return NormsAfter(*(next((m for m, answer in answers if _is_answer(m, answer, x)), None) for x in (q, k)))

    hooks = [module.register_forward_hook(keep) for module in model.modules() if _is_norm(module)]
    try:
        yield norms_of
    finally:
        for hook in hooks:
            hook.remove()


def norm_weight(norm: nn.Module | None, size: int) -> Tensor:
    """What a norm multiplies each dimension by, up to one factor of all: its answer to ones."""
    if norm is None:
        return torch.ones(())
    weight = next(norm.parameters())
    device = "cpu" if weight.device.type == "meta" else weight.device  # accelerate moves it
    answer: Tensor = norm(torch.ones(size, dtype=weight.dtype, device=device))
    return to_compute_dtype(answer)


def _is_norm(module: nn.Module) -> bool:
    """Whether its parameters are vectors only."""
    parameters = list(module.parameters())
    return bool(parameters) and all(parameter.dim() == 1 for parameter in parameters)


def _is_answer(module: nn.Module, answer: Tensor, x_bhnd: Tensor) -> bool:
    """Whether these are the same numbers in memory, from a module with a weight for each dimension of a head."""
    same = answer.data_ptr() == x_bhnd.data_ptr() and answer.numel() == x_bhnd.numel()
    return same and all(len(parameter) == x_bhnd.shape[-1] for parameter in module.parameters())


# The frequencies of a rotary module, measured: the answer of a copy of it at positions of our choice.


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
