"""The rotation of a rotary module, kept beside the identity that attention gets instead.

What chooses keys inside an attention module rotates by itself, and is called with the same cos and sin. There the
rotation that was computed is put back: the choice is made as it was trained.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ropewalk.errors import DoesNotFit
from ropewalk.hf.probe.rotary_output import RotaryOutput, is_rotation
from ropewalk.hf.runtime.forward_pass import CURRENT
from ropewalk.hf.runtime.hooks import identity_rotation
from ropewalk.hf.runtime.own_masks import INSIDE


@torch.compiler.disable  # type: ignore[untyped-decorator]
def keep_rotation(
    module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: RotaryOutput
) -> RotaryOutput:
    """The hook after a rotary module: cos = 1 and sin = 0; the pass keeps what was computed, by module and type."""
    now = CURRENT.get()
    if now is not None:
        layer_type = next((value for value in (*args, *kwargs.values()) if isinstance(value, str)), None)
        now.rotations.by_call[module, layer_type] = output
    return identity_rotation(module, args, kwargs, output)


@torch.compiler.disable  # type: ignore[untyped-decorator]
def put_back(
    rotary: nn.Module | None, layer_type: str | None, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, Any]:
    """The hook before a module inside an attention module: the rotation that was computed, in place of the identity."""

    def real(argument: Any) -> Any:
        return _kept_rotation(module, (rotary, layer_type), argument) if _may_rotate(argument) else argument

    return tuple(map(real, args)), {name: real(value) for name, value in kwargs.items()}


def _kept_rotation(
    module: nn.Module, call: tuple[nn.Module | None, str | None], identity: RotaryOutput
) -> RotaryOutput:
    """The rotation of the layer's own call, or the only one of the pass, where the identity is."""
    now, place = INSIDE.get(), _first(identity)
    kept: dict[Any, RotaryOutput] = {} if now is None else now.rotations.by_call
    rotation = kept.get(call, next(iter(kept.values())) if len(kept) == 1 else None)
    if rotation is None or _first(rotation).shape != place.shape:
        sentence = f"{type(module).__name__} is called with cos and sin that no rotary module of this pass has computed"
        raise DoesNotFit.because("rotary module", sentence, remedy="use a static schedule")
    if isinstance(rotation, Tensor):
        return rotation.to(place.device)
    cos, sin = rotation
    return cos.to(place.device), sin.to(place.device)


def _may_rotate(argument: Any) -> bool:
    pair = isinstance(argument, tuple) and len(argument) == 2 and all(isinstance(part, Tensor) for part in argument)
    return (pair or isinstance(argument, Tensor)) and is_rotation(argument)


def _first(rotation: RotaryOutput) -> Tensor:
    return rotation if isinstance(rotation, Tensor) else rotation[0]
