"""A device that this machine lacks, played by the CPU: its tensors do not mix with the CPU's, as on a GPU.

Only calls from Python are seen. What torch computes by itself runs on the CPU.
"""

from contextlib import contextmanager

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_map

THERE = torch.device("cuda", 0)
CPU = torch.device("cpu")
# Copies, uses of a shape, and a parameter that gets other data.
MAY_DIFFER = ("to", "copy_", "cpu", "type", "type_as", "view_as", "expand_as", "reshape_as", "__deepcopy__", "__set__")


class _There(torch.Tensor):
    """A tensor on the other device."""


def there(x):
    """The tensor, on the other device."""
    return x if isinstance(x, _There) else torch.Tensor._make_subclass(_There, x, x.requires_grad)


def here(x):
    """The same numbers as an ordinary tensor."""
    return x.as_subclass(torch.Tensor) if isinstance(x, _There) else x


def move(model):
    """Every parameter and buffer of a model to the other device; returns the model."""
    for module in model.modules():
        for tensors in (module._parameters, module._buffers):
            tensors.update({name: there(x.detach()) for name, x in tensors.items() if x is not None})
    return model


class _AnotherDevice(TorchFunctionMode):
    """Says where tensors are, refuses to mix them, and makes new ones where they are asked for."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if function is torch.device:
            return function(*args, **kwargs)
        if function == torch.Tensor.device.__get__:
            return THERE if isinstance(args[0], _There) else CPU
        if function == torch.Tensor.is_cuda.__get__:
            return isinstance(args[0], _There)
        leaves = tree_flatten((args, kwargs))[0]
        asked = next((x for x in leaves if isinstance(x, torch.device)), None) or named(kwargs.get("device"))
        tensors = [x for x in leaves if isinstance(x, torch.Tensor)]
        on = any(isinstance(x, _There) for x in tensors)
        require_one_device(function, args, tensors)
        moved = tree_map(lambda x: CPU if isinstance(x, torch.device) else x, (args, kwargs))
        with torch._C.DisableTorchFunctionSubclass():
            plain_args, plain_kwargs = tree_map(here, moved)
            got = function(*plain_args, **plain_kwargs)
        if in_place(function) and tensors:
            return args[0] if args else tensors[0]
        goes = asked.type == "cuda" if asked else on and function is not torch.Tensor.cpu
        return tree_map(lambda x: there(x) if isinstance(x, torch.Tensor) else x, got) if goes else got


def named(device):
    return torch.device(device) if isinstance(device, str) else device


def in_place(function):
    name = getattr(function, "__name__", "")
    return (name.endswith("_") and not name.endswith("__")) or name == "__setitem__"


def require_one_device(function, args, tensors):
    """As torch on a GPU: a tensor without dimensions may come from the CPU, and so may an index."""
    if getattr(function, "__name__", "") in MAY_DIFFER:
        return
    if function in (torch.Tensor.__getitem__, torch.Tensor.__setitem__) and isinstance(args[0], _There):
        tensors = [x for x in (args[0], *args[2:]) if isinstance(x, torch.Tensor)]
    if len({isinstance(x, _There) for x in tensors if x.dim()}) > 1:
        raise RuntimeError(f"Expected all tensors to be on the same device, but found two devices in {function}")


@contextmanager
def another_device():
    """Within it, `there(x)` is on a CUDA device."""
    with _AnotherDevice():
        yield
