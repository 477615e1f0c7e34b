"""How the loss of a text changes with the frequency of each pair and with the temperature, by backpropagation.

A model's own rotary module answers, without its `no_grad` and with a table that asks for its slope: whatever layout its
cos and sin have, slopes come in the order of the table. Weights get none.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ropewalk.errors import DoesNotFit, InvalidValue
from ropewalk.hf.attach.handle import TABLES, handle_of, host_of
from ropewalk.hf.probe.rotary import quiet, rotary_modules
from ropewalk.hf.use.long_text import PROBED, head_of, said_after

TABLE = "inv_freq"


class FrequencyGradients(NamedTuple):
    """Of the mean loss, in nats per token."""

    by_pair: Tensor  # [pairs] by the logarithm of each frequency
    by_temperature: float  # by the logarithm of what the logits are multiplied by


class GradientLeaves(NamedTuple):
    """What slopes are asked for: factors of the frequencies and of the temperature, in logarithms, at 0."""

    pairs: Tensor
    temperature: Tensor


def slopes(model: nn.Module, ids: Tensor, *, last: int) -> FrequencyGradients:
    """Of the last tokens of a text [1, tokens], where the model turns all its layers by one table of its own."""
    if ids.dim() != 2 or not 1 <= last < ids.shape[1]:
        raise InvalidValue("last", "from 1 to the tokens of [1, tokens] less one", f"{last} of {tuple(ids.shape)}")
    host, targets = host_of(model), ids[:, 1:]
    handle = handle_of(host)
    if handle is not None and handle.mode != TABLES:
        raise DoesNotFit("extension", "one that the model's own tables say", handle.reason)
    head = head_of(host, ids[:, :PROBED])
    with torch.inference_mode(False), torch.enable_grad(), quiet(host), _asking(rotary_modules(host)) as leaves:
        said, targets = said_after(host, head, ids[:, :-1], targets, {"use_cache": False})
        loss = head.losses(said[:, -last:], targets[:, -last:]).mean()
        by_pair, by_temperature = torch.autograd.grad(loss, leaves)
    return FrequencyGradients(by_pair, float(by_temperature))


@contextmanager
def _asking(modules: list[nn.Module]) -> Iterator[GradientLeaves]:
    """The model's one rotary module, answering with leaves in it."""
    tables = [module._buffers.get(TABLE) for module in modules]
    forward: Any = getattr(type(modules[0]).forward, "__wrapped__", None) if len(modules) == 1 else None
    if forward is None or tables[0] is None or "attention_scaling" not in modules[0].__dict__:
        rule = "turned by one rotary module of transformers' usual kind"
        raise DoesNotFit("model", rule, ", ".join(type(module).__name__ for module in modules))
    module, table, own = modules[0], tables[0], modules[0].__dict__
    leaves = GradientLeaves(table.new_zeros(table.shape).requires_grad_(), table.new_zeros(()).requires_grad_())
    warmth = own["attention_scaling"]
    try:
        module._buffers[TABLE] = table * leaves.pairs.exp()
        own["attention_scaling"] = warmth * (leaves.temperature / 2).exp()  # of queries and of keys
        own["forward"] = partial(forward, module)
        yield leaves
    finally:
        del own["forward"]
        module._buffers[TABLE], own["attention_scaling"] = table, warmth
