"""Linear layers of a served model on a CPU: their weights packed once, as oneDNN's kernels read them.

About twice as fast as a plain layer in float32, and each row of a product is rounded alike however many rows there are,
so that an answer does not depend on its neighbours. The plain weights are dropped meanwhile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

PRODUCT_ATOL = {torch.float32: 1e-4, torch.bfloat16: 0.05}  # of the largest number: sums in another order
ROWS = 16  # of a usual step: oneDNN chooses the layout by it


@torch.no_grad()
def packed_linears(model: nn.Module, run: Callable[[], Tensor]) -> ExitStack:
    """Pack the model's linear layers; closing what is returned unpacks them.

    `run` computes something by all of them. Where packing changes it, the model reads weights in a way of its own, and
    is left as it is.
    """
    plain, undo = run(), ExitStack()
    try:
        _pack(model, undo)
        close = _is_close(run(), plain)
    except RuntimeError:  # of a weight that is not there, or of a kernel that this CPU lacks
        close = False
    if not close:
        undo.close()
    return undo


def _pack(model: nn.Module, undo: ExitStack) -> None:
    users = Counter(id(weight) for module in model.modules() for weight in _weights(module))
    if torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        for module in model.modules():
            if _is_plain(module) and module.weight.dtype in PRODUCT_ATOL and module.weight.device.type == "cpu":
                _pack_one(module, undo, alone=users[id(module.weight)] == 1)


def _weights(module: nn.Module) -> list[nn.Parameter]:
    return [weight for weight in module._parameters.values() if weight is not None]


def _is_plain(module: nn.Module) -> bool:
    """Whether a module is a linear layer that nothing has changed."""
    return type(module) is nn.Linear and "forward" not in module.__dict__ and module.weight.dim() == 2


def _pack_one(module: Any, undo: ExitStack, *, alone: bool) -> None:
    """Pack one layer; a weight that other modules share, such as the embedding's, stays beside it."""
    weight, packed = module.weight, torch.ops.mkldnn._reorder_linear_weight(module.weight.detach(), ROWS)
    module.forward = partial(_linear, packed, module.bias)
    undo.callback(module.__dict__.pop, "forward")
    if alone:
        weight.data = weight.data.new_empty(0, weight.shape[1])
        undo.callback(_unpack, weight, packed)


def _linear(packed: Tensor, bias: Tensor | None, x: Tensor) -> Tensor:
    y: Tensor = torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")
    return y


def _unpack(weight: nn.Parameter, packed: Tensor) -> None:
    weight.data = packed.to_dense()


def _is_close(got: Tensor, expected: Tensor) -> bool:
    return bool((got - expected).abs().max() <= PRODUCT_ATOL.get(got.dtype, 0) * expected.abs().max())
