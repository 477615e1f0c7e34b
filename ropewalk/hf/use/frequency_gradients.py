"""How the loss of a text changes with the frequency of every pair and with the temperature, by backpropagation.

The model's rotary module runs without its `no_grad`, with a table that requires gradients: gradients have the order of
the table, whatever the layout of cos and sin. Weights get no gradients.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ropewalk.errors import DoesNotFit, InvalidValue
from ropewalk.hf.attach.handle import TABLES, handle_of, host_of
from ropewalk.hf.probe.host import quiet
from ropewalk.hf.probe.rotation import rotary_modules
from ropewalk.hf.use.long_text import head_inputs, head_of

TABLE = "inv_freq"


class FrequencyGradients(NamedTuple):
    """The gradients of the mean loss, in nats per token."""

    by_pair: Tensor  # [pairs] by the logarithm of every frequency
    by_temperature: float  # by the logarithm of the factor of the logits


class GradientLeaves(NamedTuple):
    """The variables: logarithms of factors of the frequencies and of the temperature, at 0."""

    pairs: Tensor
    temperature: Tensor


def slopes(model: nn.Module, ids: Tensor, *, last: int, places: Sequence[int] | None = None) -> FrequencyGradients:
    """The gradients for the last tokens of a text [1, tokens], on a model with one rotary table for all layers.

    With `places`, for those among the last tokens alone; without any of them gradients are 0.
    """
    if ids.dim() != 2 or not 1 <= last < ids.shape[1]:
        raise InvalidValue("last", "from 1 to the tokens of [1, tokens] less one", f"{last} of {tuple(ids.shape)}")
    host, targets = host_of(model), ids[:, 1:]
    handle = handle_of(host)
    if handle is not None and handle.mode != TABLES:
        raise DoesNotFit.because("extension", f"gradients need mode tables, but {handle.reason}")
    head = head_of(host, ids)
    with torch.inference_mode(False), torch.enable_grad(), quiet(host), _with_variables(rotary_modules(host)) as leaves:
        inputs, targets = head_inputs(host, head, ids[:, :-1], targets, {"use_cache": False})
        losses = head.losses(inputs[:, -last:], targets[:, -last:]).flatten()
        counted = losses if places is None else losses[list(places)]
        loss = counted.sum() / max(1, len(counted))
        by_pair, by_temperature = torch.autograd.grad(loss, leaves)
    return FrequencyGradients(by_pair, float(by_temperature))


@contextmanager
def _with_variables(modules: list[nn.Module]) -> Iterator[GradientLeaves]:
    """The model's one rotary module with the variables in its table."""
    tables = [module._buffers.get(TABLE) for module in modules]
    forward: Any = getattr(type(modules[0]).forward, "__wrapped__", None) if len(modules) == 1 else None
    if forward is None or tables[0] is None or "attention_scaling" not in modules[0].__dict__:
        rule = "turned by one rotary module of transformers' usual kind"
        raise DoesNotFit("model", rule, ", ".join(type(module).__name__ for module in modules))
    module, table, attributes = modules[0], tables[0], modules[0].__dict__
    leaves = GradientLeaves(table.new_zeros(table.shape).requires_grad_(), table.new_zeros(()).requires_grad_())
    scaling = attributes["attention_scaling"]
    try:
        module._buffers[TABLE] = table * leaves.pairs.exp()
        attributes["attention_scaling"] = scaling * (leaves.temperature / 2).exp()  # half for queries, half for keys
        attributes["forward"] = partial(forward, module)
        yield leaves
    finally:
        del attributes["forward"]
        module._buffers[TABLE], attributes["attention_scaling"] = table, scaling
