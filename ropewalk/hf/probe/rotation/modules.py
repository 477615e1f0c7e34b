"""The modules of a model that compute its cos and sin."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from ropewalk.errors import DoesNotFit
from ropewalk.hf.probe.rotary_output import is_rotary_output


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
