"""LeRoPE: a factor of every pair's frequency is learned with the weights, and kept as an ordinary table.

    theta'_i = theta_i exp(alpha_i),   alpha = 0 at first; one alpha for a pair, shared by all layers and heads

theta is the table in force: the model's own, or that of a static schedule. While it trains, alpha is a parameter of the
rotary module. `settle` puts the learned table in its place, as divisors of pairs (frequencies.longrope), which caches,
configs and engines read as any other. So does the config of every checkpoint on the way.

Source: Karypis et al. 2026, arXiv:2607.10134, sec. 3.1, which trains from scratch; alpha has no weight decay, and its
gradient is clipped by itself.

Deviation: its norm is 1 at most, in each batch, and it is clipped once more with the weights; the paper's own numbers
were not at hand.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import TrainerCallback
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from ropewalk.errors import Conflict, DoesNotFit
from ropewalk.extension.extension import Extension
from ropewalk.extension.static import static_table
from ropewalk.hf.attach.extend import extend
from ropewalk.hf.attach.handle import TABLES, handle_of, host_of
from ropewalk.hf.attach.saving import store_unchecked
from ropewalk.hf.probe.rotation import rotary_modules
from ropewalk.hf.runtime.layer import PREFIX
from ropewalk.methods.frequencies import LongRoPE
from ropewalk.methods.frequencies.frequencies import moving, trained_theta

ALPHA = f"{PREFIX}alpha"  # the parameter's name in the rotary module
ALPHA_NORM = 1.0  # that its gradient is clipped to, before that of all weights is
INV_FREQ = "inv_freq"


class LearnedTheta(TrainerCallback):
    """The learned factors of a model's frequencies: train the model, then `settle` them.

        rw.extend(model, "yarn", target_len=1024)
        theta = LearnedTheta(model)
        train(model, rows, plan, folder, callbacks=[theta])
        theta.settle()

    Args:
        model: under a static schedule, with one rotary table for all layers; "rope" is one that changes nothing.
    """

    def __init__(self, model: nn.Module) -> None:
        self._host = host_of(model)
        handle = handle_of(self._host)
        if handle is None:
            remedy = 'extend it first; "rope" changes nothing'
            raise Conflict.because("model", "frequencies are learned under an extension", remedy=remedy)
        if handle.mode != TABLES or handle.extension.layers:
            reason = handle.reason or "layers differ"
            sentence = f"frequencies are learned in one table of the model: {reason}"
            raise DoesNotFit.because("extension", sentence, remedy="take a static schedule, such as yarn, abf or rope")
        self._handle, self._module = handle, _one_module(self._host)
        self._start = static_table(handle.extension, handle.facts).double()
        if not moving(self._start).all():
            count = int((~moving(self._start)).sum())
            rule, remedy = "all above 0 where they are learned", "take a schedule under which all pairs rotate"
            raise DoesNotFit("frequencies", rule, f"{count} pairs that do not rotate", remedy=remedy)
        alpha = nn.Parameter(torch.zeros(len(self._start), device=self._table.device))
        alpha.register_hook(_clipped)  # type: ignore[no-untyped-call]
        self._module.register_parameter(ALPHA, alpha)
        self._module.__dict__["forward"] = partial(_forward, self._module)

    @property
    def alpha(self) -> Tensor:
        """The logarithms of the factors, in float64."""
        alpha: Tensor = self._alpha.detach().double().cpu()
        return alpha

    @property
    def extension(self) -> Extension:
        """The extension with the table as it is now, in place of the schedule."""
        table = self._start * self.alpha.exp()
        divisors = tuple((trained_theta(self._handle.facts) / table).tolist())
        return replace(self._handle.extension, frequencies=LongRoPE(long=divisors, short=divisors))

    def settle(self) -> None:
        """End the learning: the learned table is the model's, and alpha is gone."""
        learned, handle = self.extension, self._handle
        del self._module._parameters[ALPHA], self._module.__dict__["forward"]
        handle.remove()
        more: dict[str, Any] = {"target_len": handle.target_len, "trained_len": handle.trained_len}
        extend(self._host, learned, **more)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Let the config of a checkpoint state the table of its step, since only this training reads alpha."""
        if args.should_save:
            folder = Path(args.output_dir) / f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}"
            store_unchecked(replace(self._handle, extension=self.extension), folder)

    @property
    def _alpha(self) -> Any:
        return self._module._parameters[ALPHA]

    @property
    def _table(self) -> Any:
        return self._module._buffers[INV_FREQ]


def _one_module(host: nn.Module) -> nn.Module:
    """The model's one rotary module, if it is of transformers' usual kind."""
    modules = rotary_modules(host)
    module = modules[0]
    usual = len(modules) == 1 and INV_FREQ in module._buffers and hasattr(type(module).forward, "__wrapped__")
    if not usual:
        names = ", ".join(type(one).__name__ for one in modules)
        raise DoesNotFit("model", "one with a single rotary module and a single table where they are learned", names)
    if ALPHA in module._parameters:
        raise Conflict.because("model", "its frequencies are learned already", remedy="settle them first")
    return module


def _forward(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
    """The module's own forward without its no_grad, on the table with the factors."""
    table: Any = module._buffers[INV_FREQ]
    alpha: Any = module._parameters[ALPHA]
    wrapped: Any = getattr(type(module).forward, "__wrapped__")  # noqa: B009 - types do not know it
    module._buffers[INV_FREQ] = table * alpha.to(table.dtype).exp()
    try:
        return wrapped(module, *args, **kwargs)
    finally:
        module._buffers[INV_FREQ] = table


def _clipped(gradient: Tensor) -> Tensor:
    """The gradient at a norm of ALPHA_NORM at most: it grows with distances, and would shrink that of all weights."""
    share = float(ALPHA_NORM / gradient.norm().clamp(min=ALPHA_NORM))
    return gradient * share
